"""What the candidate takes to be served, beside the champion: measured in turns, and sizes."""

from __future__ import annotations

from pathlib import Path

from trainworthy.assets.champion_evidence import own_features
from trainworthy.assets.scoring import raise_unless_about_the_model
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training_job import job_base
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.jobs import ServedArtifact, ServingJob
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.lifecycle.protocol.results import ServingResult
from trainworthy.lifecycle.protocol.serving import TITLES, ServingFigure
from trainworthy.resources.mlflow_model import RegisteredModel

# What a service answers at once; more rows would measure the arithmetic alone.
BATCH_ROWS = 256


def serving_figures(
    run: StepRun, model: RegisteredModel, champion: RegisteredModel | None
) -> tuple[ServingFigure, ...]:
    """Every quantity with its limit; none without a champion. Raises ChampionError as own_features does."""
    if champion is None:
        return ()
    limits = run.use_case.spec.benchmark.ratio_limits
    try:
        result = run.in_worker(_job(run, model, champion))
        assert isinstance(result, ServingResult)
    except WorkerError as error:
        if limits:
            raise_unless_about_the_model(error)
        result = ServingResult(error=error.problem)
    if result.error:
        run.context.log.error(f"serving: {result.error}")
    figures = {figure.quantity: figure for figure in (*result.figures, size_figure(model.artifact, champion.artifact))}
    return tuple(
        figures.get(name, ServingFigure(quantity=name, told=result.error)).model_copy(
            update={"limit": limits.get(name)}
        )
        for name in TITLES
    )


def size_mb(artifact: Path) -> float:
    """Of all files of an artifact."""
    return sum(path.stat().st_size for path in artifact.rglob("*") if path.is_file()) / 2**20


def size_figure(candidate: Path, champion: Path) -> ServingFigure:
    """How large one artifact is beside the other; bytes have no interval."""
    mine, theirs = size_mb(candidate), size_mb(champion)
    if not theirs:
        return ServingFigure(quantity="size", candidate=mine, told="the champion's files are gone")
    ratio = mine / theirs
    return ServingFigure(quantity="size", candidate=mine, champion=theirs, ratio=ratio, low=ratio, high=ratio)


def _job(run: StepRun, model: RegisteredModel, champion: RegisteredModel) -> ServingJob:
    state, snapshot = run.workspace.state, run.record("snapshot", Snapshot)
    split = snapshot.splits["benchmark"]
    return ServingJob(
        **job_base(run, snapshot, state.folder("serving", run.use_case.name, run.run_id)),
        candidate=_served(model, snapshot.feature_columns),
        champion=_served(champion, own_features(champion)),
        rows_file=str(state.absolute(split.file.path)),
        batch_rows=min(BATCH_ROWS, split.rows),
    )


def _served(model: RegisteredModel, features: tuple[str, ...]) -> ServedArtifact:
    return ServedArtifact(path=str(model.artifact), sha256=model.artifact_sha256, features=features)
