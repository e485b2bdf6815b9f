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

from trainworthy.assets.champion import verdict_log
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.metadata import REPORT_ARTIFACT, avoided_metadata, figure_key, figures, model_cost_metadata
from trainworthy.assets.mirror import stage_folder
from trainworthy.assets.step_run import BENCHMARK_STEPS, EXPERIMENT, StepRun
from trainworthy.assets.stopped import StoppedError
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.records import (
    STEPS,
    Cost,
    DatasetVersion,
    EvaluationReport,
    Record,
    Snapshot,
    StageReport,
    Step,
    Verdict,
)
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsLine, line_of, windows_in
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.mlflow import JUDGED_BY, DataInput, Judged, TrackedRun


@contextlib.contextmanager
def without_mlflow(run: StepRun, needed: bool) -> Iterator[None]:
    """Around what MLflow is asked: unless it is `needed`, the run goes on without it, with a warning.

    Raises StoppedError if it is needed and its server does not answer.
    """
    try:
        yield
    # Whatever a store raises: the step's work is done and recorded.
    except Exception as error:
        if needed and isinstance(error, TrainworthyError):
            raise StoppedError(f"{run.use_case.name} stopped at {run.step}\n{error}") from None
        if needed:
            raise
        problem = f"MLflow does not answer ({type(error).__name__}: {error}); the run goes on"
        run.context.log.warning(f"{problem}, and {run.step} is written there with a later step")


def track(run: StepRun, tracked: TrackedRun, record: Record, reused: bool, report: Path | None) -> None:
    """The step in MLflow, and before it those of this run that MLflow did not take at their time."""
    tags = run.tracking.tags(tracked)
    for step in STEPS[: STEPS.index(run.step)]:
        missed = run.workspace.records.of_run(run.use_case.name, step, run.run_id)
        if missed is not None and f"step/{step}" not in tags:
            _write(replace(run, step=step), tracked, missed, missed.provenance.run_id != run.run_id, None)
    _write(run, tracked, record, reused, report)
    if not record.passed:
        run.tracking.end(tracked, "FAILED", run.named(f"stopped at {run.step}"))
    elif run.step == last_step(run):
        ended = record.decision if isinstance(record, Verdict) else run.intent
        run.tracking.end(tracked, "FINISHED", run.named(ended))


def _write(run: StepRun, tracked: TrackedRun, record: Record, reused: bool, report: Path | None) -> None:
    """The step's parameters, metrics, cost, curve, record and report; the tag that it is all there comes last."""
    cost = Cost().model_dump() if reused else record.cost.model_dump()
    metrics = {f"cost/{run.step}/{name}": value for name, value in cost.items()}
    metrics |= {f"{run.step}/{name}": value for name, value in figures(run, run.workspace.records, record).items()}
    metrics |= avoided_metadata(record) | model_cost_metadata(record) | benchmark_metrics(record)
    parameters = {} if run.step != "dataset" else _parameters(run.use_case)
    run.tracking.log_values(tracked, parameters=parameters, metrics=metrics, tags={})
    if isinstance(record, StageReport):
        # Most of it was written while it trained (mirror.py); what is missing, or all of a reused one, comes now.
        run.tracking.log_curve(tracked, run.step, _lines(run, record, reused))
    if isinstance(record, Snapshot):
        run.tracking.log_inputs(tracked, data_inputs(run, record))
    if isinstance(record, EvaluationReport):
        run.tracking.show_columns(tracked, columns_of(run, record))
    files = {f"records/{run.step}-{record_sha256(record)[:12]}.json": record.model_dump_json(indent=1).encode()}
    if report is not None:
        files[REPORT_ARTIFACT] = report.read_bytes()
    run.tracking.log_files(tracked, files)
    tags = {f"step/{run.step}": "reused" if reused else ("passed" if record.passed else "stopped")}
    if isinstance(record, Verdict):
        tags["verdict"] = record.decision
        describe_version(run, tracked, record)
    if isinstance(record, StageReport) and record.alarms:
        tags[f"alarms/{run.step}"] = alarm_lines(record.alarms)
    run.tracking.log_values(tracked, parameters={}, metrics={}, tags=tags)


def benchmark_metrics(record: Record) -> dict[str, float]:
    """The candidate's figures over the whole benchmark by their own names, short enough for the head of a column."""
    if not isinstance(record, EvaluationReport):
        return {}
    whole = (metric for metric in record.metrics if metric.model == "candidate" and metric.slice is None)
    return {figure_key(metric.metric): metric.estimate.value for metric in whole}


def columns_of(run: StepRun, record: EvaluationReport) -> list[str]:
    """What people compare runs by: the score of the kind of task, the primary metric, and the loss of validation."""
    score = kind_of(target_of(run.use_case.spec.task, judged_contract(run).label.classes)).score
    named = [figure_key(name) for name in dict.fromkeys((score, record.primary))]
    return [*(name for name in named if name in benchmark_metrics(record)), "full/val_loss"]


def data_inputs(run: StepRun, snapshot: Snapshot) -> list[DataInput]:
    """The dataset by the hash of its rows, and each split by the hash of its file."""
    state = run.workspace.state
    dataset = run.workspace.records.get(run.use_case.name, "dataset", snapshot.parents["dataset"])
    assert isinstance(dataset, DatasetVersion)
    whole = DataInput(
        run.dataset, dataset.content_hash, state.absolute(dataset.path).as_uri(), dataset.rows, "dataset"
    )  # fmt: skip
    splits = (
        DataInput(
            f"{run.dataset}/{name}", split.file.sha256, state.absolute(split.file.path).as_uri(), split.rows, name
        )
        for name, split in snapshot.splits.items()
    )
    return [whole, *splits]


def describe_version(run: StepRun, tracked: TrackedRun, verdict: Verdict) -> None:
    """The registered version says what its newest verdict was; an older one that is found again changes nothing."""
    from trainworthy.lifecycle.report import in_words

    entries = log.read(verdict_log(run))
    newest = [entry.verdict_sha256 for entry in entries if entry.model_version == verdict.model_version][-1:]
    if newest != [record_sha256(verdict)]:
        return
    evaluation = run.record("evaluation", EvaluationReport)
    metrics = benchmark_metrics(evaluation)
    named = {name: metrics[name] for name in columns_of(run, evaluation) if name in metrics}
    figures_text = ", ".join(f"{name} {value:.4f}" for name, value in named.items())
    summary = f"**{verdict.decision}** on {run.dataset}: {figures_text}"
    tags = {"verdict": verdict.decision, "dataset": run.dataset, JUDGED_BY: run.run_id}
    tags["verdict/held_back_by"] = ", ".join(verdict.held_back_codes) or "nothing"
    tags |= {f"benchmark/{name}": f"{value:.6g}" for name, value in named.items()}
    decides = f"\n\nServed, it decides: {verdict.decides.told}." if verdict.decides is not None else ""
    description = f"{summary}{decides}\n\n{in_words.markdown_list(in_words.reasons(verdict))}"
    run.tracking.describe(tracked, verdict.model_name, verdict.model_version, Judged(description, tags, metrics))


def _lines(run: StepRun, stage: StageReport, reused: bool) -> list[MetricsLine]:
    """The stage's points with the times at which the worker wrote them, else now."""
    written: list[MetricsLine] = []
    if not reused:
        with contextlib.suppress(OSError):
            state = run.workspace.state
            folder = stage_folder(state, run.use_case, stage.training_run, stage.kind, stage.seed)
            written = windows_in(folder / FILE_NAME)
    now, known = time.time_ns() // 1_000_000, {line.key: line.at_ms for line in written}
    lines = [line_of(point_or_alarm, now) for point_or_alarm in (*stage.curve, *stage.monitored, *stage.alarms)]
    return [line.model_copy(update={"at_ms": known.get(line.key, now)}) for line in lines]


def alarm_lines(alarms: Sequence[Alarm]) -> str:
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


def last_step(run: StepRun) -> Step:
    """The last step that this Dagster run is to make."""
    return steps_of(run)[-1]


def steps_of(run: StepRun) -> list[Step]:
    """The steps that this Dagster run is to make, in their order; an experiment's end before the benchmark."""
    steps: list[Step] = [
        step for step in _selected(run.context) if run.intent != EXPERIMENT or step not in BENCHMARK_STEPS
    ]
    return steps or [run.step]


def first_step(context: dg.AssetExecutionContext) -> Step:
    """The first one."""
    return _selected(context)[0]


def _selected(context: dg.AssetExecutionContext) -> list[Step]:
    selected = {key.path[-1] for key in context.job_def.asset_layer.selected_asset_keys}
    return [step for step in STEPS if step in selected]
