"""A step in MLflow: parameters, metrics, cost, curve, record and report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.metadata import REPORT_ARTIFACT, avoided_metadata, figures
from lifecycle.records import STEPS, Alarm, Cost, Record, StageReport, Step
from lifecycle.storage.records import record_sha256
from lifecycle.training.watching.metrics_file import line_of
from lifecycle.use_case import UseCase
from resources.mlflow import TrackedRun

if TYPE_CHECKING:
    from assets.step import StepRun


def track(run: StepRun, tracked: TrackedRun, record: Record, reused: bool, report: Path | None) -> None:
    """The step in MLflow: parameters, metrics, cost, curve, record and report."""
    cost = Cost().model_dump() if reused else record.cost.model_dump()
    metrics = {f"cost/{run.step}/{name}": value for name, value in cost.items()}
    metrics |= {f"{run.step}/{name}": value for name, value in figures(run, record).items()}
    metrics |= avoided_metadata(record)
    parameters = {} if run.step != "dataset" else _parameters(run.use_case)
    tags = {f"step/{run.step}": "reused" if reused else ("passed" if record.passed else "stopped")}
    if isinstance(record, StageReport) and record.alarms:
        tags[f"alarms/{run.step}"] = told_alarms(record.alarms)
    run.tracking.log_values(tracked, parameters=parameters, metrics=metrics, tags=tags)
    if isinstance(record, StageReport):
        # Most of it was written while it trained (mirror.py); what is missing, or all of a reused one, comes now.
        now = time.time_ns() // 1_000_000
        points = (*record.curve, *record.monitored, *record.alarms)
        run.tracking.log_curve(tracked, run.step, [line_of(point, now) for point in points])
    files = {f"records/{run.step}-{record_sha256(record)[:12]}.json": record.model_dump_json(indent=1).encode()}
    if report is not None:
        files[REPORT_ARTIFACT] = report.read_bytes()
    run.tracking.log_files(tracked, files)
    if not record.passed:
        run.tracking.end(tracked, "FAILED")
    elif run.step == last_step(run.context):
        run.tracking.end(tracked, "FINISHED")


def told_alarms(alarms: Sequence[Alarm]) -> str:
    """Every alarm in a line; MLflow takes 5,000 characters."""
    lines = [
        f"step {alarm.step}: {alarm.monitor} ({alarm.severity}, {alarm.action}): {alarm.symptom}" for alarm in alarms
    ]
    return "\n".join(lines)[:5000]


def _parameters(use_case: UseCase) -> dict[str, Any]:
    """use_case.yaml as flat names."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else str(name), inner)
        else:
            flat[prefix] = value

    walk("", use_case.spec.model_dump(mode="json"))
    return flat


def last_step(context: dg.AssetExecutionContext) -> Step:
    """The last step that this Dagster run is to make."""
    selected = {key.path[-1] for key in context.job_def.asset_layer.selected_asset_keys}
    return next(step for step in reversed(STEPS) if step in selected)
