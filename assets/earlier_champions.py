"""How the champions of before do on today's benchmark: how fast a model ages here. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trainworthy.assets.champion import verdict_log
from trainworthy.assets.champion_evidence import champion_answers
from trainworthy.assets.comparable import champion_window
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training import job_kind
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.errors import ChampionError, TrainworthyError
from trainworthy.lifecycle.evaluation.comparison import measured_by, row_weights, weighed
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.figures import CANDIDATE, Estimate
from trainworthy.lifecycle.protocol.records import EarlierChampion, EvaluationReport
from trainworthy.lifecycle.tasks.metric import estimate
from trainworthy.resources.mlflow_model import RegisteredModel

if TYPE_CHECKING:
    import pandas as pd


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
