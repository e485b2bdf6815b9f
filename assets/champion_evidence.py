"""Champions' answers to this run's benchmark, kept, and what the candidate gains over the present one's.

How the champions of before do on it says how fast a model ages here: that decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.assets.champion import verdict_log
from trainworthy.assets.comparable import champion_window
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.scoring import benchmark_job, raise_unless_about_the_model
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.suite import benchmark_parts, groups_in_time, shown_values
from trainworthy.assets.training_job import job_base, job_kind
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.code_identity import ENTRY_OF_JOB, KEPT, WORKER, CodeOnDisk
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.errors import ChampionError, TrainworthyError, WorkerError
from trainworthy.lifecycle.evaluation.blind_spots import benchmark_spots
from trainworthy.lifecycle.evaluation.comparison import comparison, measured_by, row_weights, weighed
from trainworthy.lifecycle.evaluation.decision import of_decisions
from trainworthy.lifecycle.evaluation.kept_answers import keep_answers, kept_answers, side_by_side
from trainworthy.lifecycle.evaluation.model_figures import model_figures
from trainworthy.lifecycle.evaluation.seed_spread import with_seeds
from trainworthy.lifecycle.evaluation.slice_results import with_gains
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.figures import (
    CANDIDATE,
    CHAMPION,
    BlindSpot,
    Comparison,
    Estimate,
    ModelFigures,
    SliceResult,
)
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.protocol.records import (
    DatasetVersion,
    EarlierChampion,
    EvaluationReport,
    Snapshot,
    StageReport,
    StoredFile,
)
from trainworthy.lifecycle.protocol.results import PredictResult
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import estimate
from trainworthy.resources.mlflow_model import RegisteredModel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ChampionEvidence:
    """The gain over the champion, on all rows and on slices; `error` says why there is none.

    `answers` has both models' answers row by row, `blind_spots` are the candidate's with what the champion loses there,
    `figures` all that is told of the champion on these rows.
    """

    slices: tuple[SliceResult, ...]
    comparison: Comparison | None = None
    error: str = ""
    answers: StoredFile | None = None
    blind_spots: tuple[BlindSpot, ...] = ()
    figures: ModelFigures | None = None


def champion_evidence(run: StepRun, champion: RegisteredModel | None) -> ChampionEvidence:
    """Compare with the champion on the same rows. Raises ChampionError for one that no longer names its columns."""
    import pandas as pd

    evaluation = run.record("evaluation", EvaluationReport)
    if champion is None:
        return ChampionEvidence(evaluation.slices)
    try:
        theirs = champion_answers(run, champion)
    except WorkerError as error:
        raise_unless_about_the_model(error)
        run.context.log.error(f"champion: {error}")
        return ChampionEvidence(evaluation.slices, error=error.problem)
    kind, other = job_kind(run), artifact_kind(champion.artifact)
    if (kind.name, kind.answer_names) != (other.name, other.answer_names):
        return ChampionEvidence(evaluation.slices, error="it answers another task than the candidate")
    benchmark = run.use_case.spec.benchmark
    mine = pd.read_parquet(run.workspace.state.absolute(evaluation.predictions.path))
    file, both = _kept_side_by_side(run, mine, theirs)
    parts, (features, cuts) = benchmark_parts(run, mine), _shown_values(run)
    return ChampionEvidence(
        with_gains(evaluation.slices, parts, mine, theirs, benchmark, kind),
        with_seeds(
            comparison(benchmark, kind, ("candidate", mine), ("candidate", theirs), "champion"),
            run.record("full", StageReport).trained,
            of_decisions=of_decisions(benchmark, kind, benchmark.primary.metric),
        ),
        answers=file,
        blind_spots=_spots_of_both(evaluation, both, features, cuts, benchmark.baselines, kind),
        figures=model_figures(
            both,
            CHAMPION,
            benchmark,
            kind,
            parts=parts,
            features=features[_axis_features(evaluation, features)],
            ordered=groups_in_time(run),
        ),
    )


def champion_answers(run: StepRun, champion: RegisteredModel) -> pd.DataFrame:
    """Its answers to this benchmark: those that are kept, or made by its own code and columns in its own process."""
    import pandas as pd

    job = benchmark_job(run, champion, "champion", own_features(champion), compared=True)
    folder = run.workspace.state.folder("answers", run.use_case.name, answers_key(run, job))
    answers = kept_answers(folder)
    if answers is None:
        result = run.in_worker(job)
        assert isinstance(result, PredictResult)
        answers = pd.read_parquet(result.predictions.path)
        keep_answers(folder, answers)
    return answers


def answers_key(run: StepRun, job: PredictJob) -> str:
    """Names the answers that a job gives: by the job, but for its paths, by the rows it reads, and by the code."""
    snapshot, code = run.record("snapshot", Snapshot), CodeOnDisk(run.workspace.state.folder(*KEPT))
    paths = {"out", "use_case_folder", "artifact", "rows_file", "calibration_file", "loaders", "device"}
    job_values = job.model_dump(mode="json", exclude={**dict.fromkeys(paths, True), "rows": {"files_root"}})
    return sha256_json(
        {
            "job": job_values,
            "snapshot": snapshot.content_hash,
            "dataset": run.record("dataset", DatasetVersion).content_hash,
            "code": code.of((WORKER, ENTRY_OF_JOB[PredictJob])).sha256,
            # Metrics of the use case's own may call any of its code.
            "use_case": code.step(run.use_case.folder, "evaluation") if job.metrics else "",
        }
    )[:32]


def own_features(champion: RegisteredModel) -> tuple[str, ...]:
    """The columns that the champion was trained on, by its own artifact. Raises ChampionError if it does not say.

    A column that the present snapshot lacks ends its scoring, and so the comparison. The worker verifies the
    file read here against the artifact's hash before it scores a row.
    """
    version, fix = f"{champion.name} version {champion.version}", "restore the version as it was registered"
    if not champion.tags.get("artifact_sha256"):
        raise ChampionError("the champion's tag artifact_sha256 is missing", value=version, fix=fix)
    try:
        features = json.loads((champion.artifact / "features.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChampionError(f"the champion's features.json cannot be read: {error}", value=version, fix=fix) from None
    if not isinstance(features, list) or not features or not all(isinstance(name, str) for name in features):
        raise ChampionError("the champion's features.json is no list of columns", value=version, fix=fix)
    return tuple(features)


def _shown_values(run: StepRun) -> tuple[pd.DataFrame, dict[str, tuple[float, ...]]]:
    snapshot = run.record("snapshot", Snapshot)
    return shown_values(run, snapshot, job_base(run, snapshot, Path())["rows"])


def _axis_features(evaluation: EvaluationReport, features: pd.DataFrame) -> list[str]:
    """Features by which the candidate's losses are told, so that the champion's are by the same."""
    axes = evaluation.residuals.axes if evaluation.residuals else ()
    return [axis.by for axis in axes if axis.by in features.columns]


def _spots_of_both(
    evaluation: EvaluationReport,
    both: pd.DataFrame,
    features: pd.DataFrame,
    cuts: Mapping[str, tuple[float, ...]],
    baselines: Sequence[str],
    kind: Kind,
) -> tuple[BlindSpot, ...]:
    """The candidate's blind spots as the evaluation found them, if it found some, with the champion's excess."""
    if not evaluation.blind_spots:
        return ()
    table = weighed(both)
    return benchmark_spots(table, features.loc[table.index], cuts, kind, baselines).spots


def _kept_side_by_side(run: StepRun, mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[StoredFile, pd.DataFrame]:
    """Both models' answers with what names a row, but for what is sensitive."""
    contract, snapshot = judged_contract(run), run.record("snapshot", Snapshot)
    key = [name for name in contract.primary_key if name not in contract.sensitive_columns]
    files = SplitFiles(run.workspace.state.absolute(snapshot.splits["benchmark"].file.path).parent)
    table = side_by_side(mine, theirs, files.read("benchmark", key))
    folder = run.workspace.state.folder("answers", run.use_case.name, run.identity[:32])
    path, sha256, size = keep_answers(folder, table)
    return StoredFile(path=run.workspace.state.relative(path), sha256=sha256, bytes=size), table


def earlier_champions(run: StepRun, judged: RegisteredModel) -> tuple[EarlierChampion, ...]:
    """The present champion and as many before it as declared, newest first; none where that is 0.

    Each answers once for a benchmark: its answers are kept. One that cannot be asked is told with the reason.
    """
    declared = run.use_case.spec.promotion.earlier_champions
    if not declared:
        return ()
    models = {model.version: model for model in run.tracking.versions(judged.name)}
    newest = list(_promotions(log.read(verdict_log(run)), judged, models))[: 1 + declared]
    return tuple(_earlier_champion(run, entry, models.get(entry.model_version)) for entry in newest)


def _promotions(
    entries: tuple[LogEntry, ...], judged: RegisteredModel, models: Mapping[str, RegisteredModel]
) -> Iterator[LogEntry]:
    """Each other artifact's last promotion, newest first: under another decision it answers the same."""

    def artifact(version: str) -> str:
        return models[version].artifact_sha256 if version in models else version

    listed = {judged.version, judged.artifact_sha256}
    for entry in reversed(entries):
        known = artifact(entry.model_version)
        if entry.action == "promote" and not {entry.model_version, known} & listed:
            listed.add(known)
            yield entry


def _earlier_champion(run: StepRun, entry: LogEntry, model: RegisteredModel | None) -> EarlierChampion:
    earlier = EarlierChampion(
        version=entry.model_version,
        promoted=entry.written_at,
        metric=run.use_case.spec.benchmark.primary.metric,
    )
    try:
        earlier = earlier.model_copy(update={"then": _then(run, entry)})
        return earlier.model_copy(update={"now": _now(run, model)})
    # It decides nothing, so that nothing of it may end a verdict: no lost record, no file of another form, no worker
    # that was killed.
    except Exception as error:
        problem = error.problem if isinstance(error, TrainworthyError) else f"{type(error).__name__}: {error}"
        run.context.log.warning(f"champion version {entry.model_version}, today: {problem}")
        return earlier.model_copy(update={"reason": problem})


def _then(run: StepRun, entry: LogEntry) -> Estimate | None:
    """The primary metric of now on the benchmark by which it was promoted."""
    records, name = run.workspace.records, run.use_case.name
    verdict = records.get(name, "promotion", entry.verdict_sha256)
    report = records.get(name, "evaluation", verdict.parents["evaluation"])
    metric = run.use_case.spec.benchmark.primary.metric
    assert isinstance(report, EvaluationReport)
    own = (
        measured
        for measured in report.metrics
        if (measured.model, measured.metric, measured.slice) == (CANDIDATE, metric, None)
    )
    return next((measured.estimate for measured in own), None)


def _now(run: StepRun, model: RegisteredModel | None) -> Estimate:
    """The primary metric on this benchmark. Raises TrainworthyError where it cannot or must not be asked."""
    fix = "nothing has to be done: it decides nothing"
    if model is None:
        raise ChampionError("it is gone from the registry", fix=fix)
    kind, window = job_kind(run), champion_window(run, model)
    own = artifact_kind(model.artifact)
    if (own.name, own.answer_names) != (kind.name, kind.answer_names):
        raise ChampionError("it answers another task", fix=fix)
    if window.status != "pass":
        raise ChampionError(f"it may have seen this benchmark: {window.evidence}", fix=fix)
    answers = weighed(_weights_of(run, champion_answers(run, model)))
    spec = run.use_case.spec.benchmark
    metric, figures = measured_by(spec, kind, spec.primary.metric, CANDIDATE, answers)
    labels = kind.checked_labels(answers["label"])
    return estimate(metric, labels, figures, answers["group"], row_weights(answers))


def _weights_of(run: StepRun, answers: pd.DataFrame) -> pd.DataFrame:
    """The answers with the weights of their rows, which the candidate's answers to the same rows have."""
    import pandas as pd

    evaluation = run.record("evaluation", EvaluationReport)
    mine = pd.read_parquet(run.workspace.state.absolute(evaluation.predictions.path))
    return answers.assign(weight=mine["weight"].to_numpy()) if "weight" in mine.columns else answers
