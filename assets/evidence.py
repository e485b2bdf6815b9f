"""What promotion has to measure: the registered artifact in a fresh process, an equal rerun."""

from __future__ import annotations

from typing import Any

from trainworthy.assets.comparable import champion_window
from trainworthy.assets.scoring import benchmark_job, raise_unless_about_the_model
from trainworthy.assets.serving import size_mb
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training import train_job
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.evaluation.disjoint import NAME as WINDOW
from trainworthy.lifecycle.golden import largest_difference
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import EvaluationReport, Snapshot, StageReport
from trainworthy.lifecycle.protocol.results import PredictResult, TrainResult
from trainworthy.lifecycle.tasks.kind import from_columns
from trainworthy.resources.mlflow_model import RegisteredModel

COMPARED_ROWS = 200


def deployment_evidence(run: StepRun, model: RegisteredModel) -> dict[str, Any]:
    """Load the registered files in a fresh process; answer the first benchmark rows and the golden requests again."""
    import pandas as pd

    evaluation = run.record("evaluation", EvaluationReport)
    evidence: dict[str, Any] = {
        "loaded": False, "rows_compared": 0, "difference": None, "golden_difference": None,
        "tolerance": ANSWER_TOLERANCE, "latency": None, "size_mb": size_mb(model.artifact),
    }  # fmt: skip
    try:
        features = run.record("snapshot", Snapshot).feature_columns
        latency_limit_ms = run.use_case.spec.benchmark.latency_ms
        job = benchmark_job(run, model, "deployment", features, limit=COMPARED_ROWS, latency_limit_ms=latency_limit_ms)
        result = run.in_worker(job)
        assert isinstance(result, PredictResult)
    except WorkerError as error:
        raise_unless_about_the_model(error)
        run.context.log.error(f"deployment: {error}")
        return evidence
    kind, evaluated = (
        artifact_kind(model.artifact),
        pd.read_parquet(run.workspace.state.absolute(evaluation.predictions.path)),
    )
    served = from_columns(kind, "candidate", pd.read_parquet(result.predictions.path))
    expected = from_columns(kind, "candidate", evaluated.head(COMPARED_ROWS))
    difference = largest_difference(expected, served, kind.answer_scale(expected))
    return evidence | {
        "loaded": True,
        "rows_compared": len(served),
        # JSON has no infinity; any difference above 1 fails all the same.
        "difference": min(difference, 2.0),
        "golden_difference": result.golden.difference if result.golden else None,
        "latency": result.latency,
    }


def reproducibility_evidence(run: StepRun) -> str | None:
    """Hash of the parameters after an equal rerun of the training's first steps; None if it did not run."""
    snapshot, full = run.record("snapshot", Snapshot), run.record("full", StageReport)
    try:
        job = train_job(run, snapshot, full.training_run, "full", full.seed, rerun_steps=full.prefix_steps)
        # Equal by itself, and not for what the two processes share.
        result = run.in_worker(job, fresh=True)
    except WorkerError as error:
        raise_unless_about_the_model(error)
        run.context.log.error(f"reproducibility: {error}")
        return None
    assert isinstance(result, TrainResult)
    return result.prefix_sha256


def benchmark_windows(
    run: StepRun, evaluation: EvaluationReport, champion: RegisteredModel | None
) -> tuple[CheckResult, ...]:
    """Whether the benchmark is apart from what the candidate saw, as evaluation found, and what the champion saw."""
    own = tuple(check for check in evaluation.checks if check.name == WINDOW)
    return own if champion is None else (*own, champion_window(run, champion))
