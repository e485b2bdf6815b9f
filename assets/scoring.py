"""The worker's job that lets a registered model answer this run's benchmark."""

from __future__ import annotations

from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training_job import job_base
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.evaluation.comparison import metric_columns
from trainworthy.lifecycle.evaluation.operating_point import frozen_threshold
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_INTERNAL
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.resources.mlflow_model import RegisteredModel


def benchmark_job(
    run: StepRun,
    model: RegisteredModel,
    purpose: str,
    features: tuple[str, ...],
    *,
    limit: int | None = None,
    compared: bool = False,
    latency_limit_ms: float | None = None,
) -> PredictJob:
    """Score the first `limit` rows, or all, on these columns.

    `compared`: another model's answers are held against these, so that own metrics and decisions are asked as well.
    """
    state, snapshot, benchmark = run.workspace.state, run.record("snapshot", Snapshot), run.use_case.spec.benchmark
    base = job_base(run, snapshot, state.folder(purpose, run.use_case.name, run.run_id))
    return PredictJob(
        **base | {"rows": base["rows"].model_copy(update={"features": features})},
        artifact=str(model.artifact),
        artifact_sha256=model.artifact_sha256,
        rows_file=str(state.absolute(snapshot.splits["benchmark"].file.path)),
        limit=limit,
        metrics=tuple(benchmark.metrics) if compared else (),
        metric_columns=metric_columns(benchmark, snapshot) if compared else (),
        decision=benchmark.decision if compared else None,
        threshold=frozen_threshold(benchmark, model.tags) if compared else None,
        calibration_file=str(state.absolute(snapshot.splits["calibration"].file.path)) if compared else None,
        latency_limit_ms=latency_limit_ms,
    )


def raise_unless_about_the_model(error: WorkerError) -> None:
    """A killed worker or a full disk says nothing about a model: the step stops without a verdict."""
    if error.exit_code not in (EXIT_BAD_INPUT, EXIT_INTERNAL):
        raise error
