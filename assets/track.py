"""A step in MLflow: parameters, metrics, cost, curve, record and report.

Where MLflow does not answer, a step in the middle of a run is written with a later one: what it gave is in its record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from trainworthy.assets.metadata import REPORT_ARTIFACT, avoided_metadata, figures
from trainworthy.assets.mirror import stage_folder
from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.protocol.records import STEPS, Alarm, Cost, Record, StageReport, Step
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsLine, line_of, windows_in
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.mlflow import TrackedRun


@contextlib.contextmanager
def without_mlflow(run: StepRun, needed: bool) -> Iterator[None]:
    """Around what MLflow is asked: unless it is `needed`, the run goes on without it, with a warning."""
    try:
        yield
    # Whatever a store raises: the step's work is done and recorded.
    except Exception as error:
        if needed:
            raise
        told = f"MLflow does not answer ({type(error).__name__}: {error}); the run goes on"
        run.context.log.warning(f"{told}, and {run.step} is written there with a later step")


def track(run: StepRun, tracked: TrackedRun, record: Record, reused: bool, report: Path | None) -> None:
    """The step in MLflow, and before it those of this run that MLflow did not take at their time."""
    tags = run.tracking.tags(tracked)
    for step in STEPS[: STEPS.index(run.step)]:
        missed = run.workspace.records.of_run(run.use_case.name, step, run.run_id)
        if missed is not None and f"step/{step}" not in tags:
            _write(replace(run, step=step), tracked, missed, missed.provenance.run_id != run.run_id, None)
    _write(run, tracked, record, reused, report)
    if not record.passed:
        run.tracking.end(tracked, "FAILED")
    elif run.step == last_step(run.context):
        run.tracking.end(tracked, "FINISHED")


def _write(run: StepRun, tracked: TrackedRun, record: Record, reused: bool, report: Path | None) -> None:
    """The step's parameters, metrics, cost, curve, record and report; the tag that it is all there comes last."""
    cost = Cost().model_dump() if reused else record.cost.model_dump()
    metrics = {f"cost/{run.step}/{name}": value for name, value in cost.items()}
    metrics |= {f"{run.step}/{name}": value for name, value in figures(run, run.workspace.records, record).items()}
    metrics |= avoided_metadata(record)
    parameters = {} if run.step != "dataset" else _parameters(run.use_case)
    run.tracking.log_values(tracked, parameters=parameters, metrics=metrics, tags={})
    if isinstance(record, StageReport):
        # Most of it was written while it trained (mirror.py); what is missing, or all of a reused one, comes now.
        run.tracking.log_curve(tracked, run.step, _lines(run, record, reused))
    files = {f"records/{run.step}-{record_sha256(record)[:12]}.json": record.model_dump_json(indent=1).encode()}
    if report is not None:
        files[REPORT_ARTIFACT] = report.read_bytes()
    run.tracking.log_files(tracked, files)
    tags = {f"step/{run.step}": "reused" if reused else ("passed" if record.passed else "stopped")}
    if isinstance(record, StageReport) and record.alarms:
        tags[f"alarms/{run.step}"] = told_alarms(record.alarms)
    run.tracking.log_values(tracked, parameters={}, metrics={}, tags=tags)


def _lines(run: StepRun, stage: StageReport, reused: bool) -> list[MetricsLine]:
    """The stage's points with the times at which the worker wrote them, else now."""
    written: list[MetricsLine] = []
    if not reused:
        with contextlib.suppress(OSError):
            state = run.workspace.state
            folder = stage_folder(state, run.use_case, stage.training_run, stage.kind, stage.seed)
            written = windows_in(folder / FILE_NAME)
    now, known = time.time_ns() // 1_000_000, {line.key: line.at_ms for line in written}
    lines = [line_of(one, now) for one in (*stage.curve, *stage.monitored, *stage.alarms)]
    return [line.model_copy(update={"at_ms": known.get(line.key, now)}) for line in lines]


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
