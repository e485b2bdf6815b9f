"""What promotion has to measure: the registered artifact in a fresh process, an equal rerun, the champion."""

from __future__ import annotations

import json
from typing import Any

from trainworthy.assets.comparable import champion_window
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training import job_base, job_kind, train_job
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.errors import ChampionError, WorkerError
from trainworthy.lifecycle.evaluation.comparison import comparison, metric_columns
from trainworthy.lifecycle.evaluation.disjoint import NAME as WINDOW
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_INTERNAL
from trainworthy.lifecycle.golden import largest_difference
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.protocol.records import Comparison, EvaluationReport, Snapshot, StageReport
from trainworthy.lifecycle.protocol.results import PredictResult, TrainResult
from trainworthy.lifecycle.tasks.kind import from_columns
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import RegisteredModel

COMPARED_ROWS = 200


def deployment_evidence(run: StepRun, launcher: Launcher, model: RegisteredModel) -> dict[str, Any]:
    """Load the registered files in a fresh process; answer the first benchmark rows and the golden requests again."""
    import pandas as pd

    evaluation = run.record("evaluation", EvaluationReport)
    size_mb = sum(path.stat().st_size for path in model.artifact.rglob("*") if path.is_file()) / 2**20
    evidence: dict[str, Any] = {
        "loaded": False, "rows_compared": 0, "difference": None, "golden_difference": None,
        "tolerance": ANSWER_TOLERANCE, "latency": None, "size_mb": size_mb,
    }  # fmt: skip
    try:
        features = run.record("snapshot", Snapshot).feature_columns
        latency_limit_ms = run.use_case.spec.benchmark.latency_ms
        result = _predict(run, launcher, model, "deployment", features, COMPARED_ROWS, latency_limit_ms)
    except WorkerError as error:
        _raise_unless_about_the_model(error)
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


def reproducibility_evidence(run: StepRun, launcher: Launcher) -> str | None:
    """Hash of the parameters after an equal rerun of the training's first steps; None if it did not run."""
    snapshot, full = run.record("snapshot", Snapshot), run.record("full", StageReport)
    try:
        job = train_job(run, snapshot, full.training_run, "full", full.seed, rerun_steps=full.prefix_steps)
        # Equal by itself, and not for what the two processes share.
        result = launcher.run(run.context, job, fresh=True)
    except WorkerError as error:
        _raise_unless_about_the_model(error)
        run.context.log.error(f"reproducibility: {error}")
        return None
    assert isinstance(result, TrainResult)
    return result.prefix_sha256


def champion_comparison(run: StepRun, launcher: Launcher, champion: RegisteredModel) -> tuple[Comparison | None, str]:
    """Paired gain over the champion, re-scored on this benchmark by its own code and columns in its own process.

    None and the reason if it could not be scored. Raises ChampionError for a champion that no longer names its columns.
    """
    import pandas as pd

    evaluation, features = run.record("evaluation", EvaluationReport), own_features(champion)
    try:
        result = _predict(run, launcher, champion, "champion", features, limit=None)
    except WorkerError as error:
        _raise_unless_about_the_model(error)
        run.context.log.error(f"champion: {error}")
        return None, error.problem
    mine = pd.read_parquet(run.workspace.state.absolute(evaluation.predictions.path))
    theirs = pd.read_parquet(result.predictions.path)
    benchmark, kind, other = run.use_case.spec.benchmark, job_kind(run), artifact_kind(champion.artifact)
    if (kind.name, kind.answer_names) != (other.name, other.answer_names):
        return None, "it answers another task than the candidate"
    return comparison(benchmark, kind, ("candidate", mine), ("candidate", theirs), "champion"), ""


def own_features(champion: RegisteredModel) -> tuple[str, ...]:
    """The columns that the champion was trained on, by its own artifact. Raises ChampionError if it does not say.

    A column that the present snapshot lacks ends its scoring, and so the comparison. The worker verifies the
    file read here against the artifact's hash before it scores a row.
    """
    told, fix = f"{champion.name} version {champion.version}", "restore the version as it was registered"
    if not champion.tags.get("artifact_sha256"):
        raise ChampionError("the champion's tag artifact_sha256 is missing", value=told, fix=fix)
    try:
        features = json.loads((champion.artifact / "features.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChampionError(f"the champion's features.json cannot be read: {error}", value=told, fix=fix) from None
    if not isinstance(features, list) or not features or not all(isinstance(name, str) for name in features):
        raise ChampionError("the champion's features.json is no list of columns", value=told, fix=fix)
    return tuple(features)


def benchmark_windows(
    run: StepRun, evaluation: EvaluationReport, champion: RegisteredModel | None
) -> tuple[CheckResult, ...]:
    """Whether the benchmark is apart from what the candidate saw, as evaluation found, and what the champion saw."""
    own = tuple(check for check in evaluation.checks if check.name == WINDOW)
    return own if champion is None else (*own, champion_window(run, champion))


def _raise_unless_about_the_model(error: WorkerError) -> None:
    """A killed worker or a full disk says nothing about a model: the step stops without a verdict."""
    if error.exit_code not in (EXIT_BAD_INPUT, EXIT_INTERNAL):
        raise error


def _predict(
    run: StepRun,
    launcher: Launcher,
    model: RegisteredModel,
    purpose: str,
    features: tuple[str, ...],
    limit: int | None,
    latency_limit_ms: float | None = None,
) -> PredictResult:
    state, snapshot = run.workspace.state, run.record("snapshot", Snapshot)
    base, benchmark = (
        job_base(run, snapshot, state.folder(purpose, run.use_case.name, run.run_id)),
        run.use_case.spec.benchmark,
    )
    job = PredictJob(
        **base | {"rows": base["rows"].model_copy(update={"features": features})},
        artifact=str(model.artifact),
        artifact_sha256=model.tags["artifact_sha256"],
        rows_file=str(state.absolute(snapshot.splits["benchmark"].file.path)),
        limit=limit,
        # Only where models are compared: what is shipped has no metrics.
        metrics=tuple(benchmark.metrics) if purpose == "champion" else (),
        metric_columns=metric_columns(benchmark, snapshot) if purpose == "champion" else (),
        latency_limit_ms=latency_limit_ms,
    )
    result = launcher.run(run.context, job)
    assert isinstance(result, PredictResult)
    return result
