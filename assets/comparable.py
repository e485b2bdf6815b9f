"""What a candidate is asked about the champion before anything is spent on its training."""

from __future__ import annotations

from trainworthy.assets.champion import champion_of, verdict_log
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.step_run import CANDIDATE, StepRun
from trainworthy.assets.training_job import job_kind
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.errors import ChampionError, TrainworthyError
from trainworthy.lifecycle.evaluation.disjoint import champion_overlap
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.decide import check_first_model
from trainworthy.lifecycle.promotion.judged import NOTHING_NEWER, standing, waiting
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.lifecycle.run_config import config_text
from trainworthy.lifecycle.spec.split import Windows
from trainworthy.lifecycle.tasks import Kind
from trainworthy.resources.mlflow_model import RegisteredModel


def refuse_candidate(run: StepRun) -> None:
    """Raises ChampionError for a candidate whose verdict could only be reject, before anything is spent on it."""
    if run.intent != CANDIDATE:
        return
    champion = champion_of(run)
    check_first_model(run.use_case.folder, run.declared.first_model, champion.version if champion else None)
    if champion is not None:
        refuse_incomparable(run, champion)


def candidate_is_refused(run: StepRun) -> bool:
    """True if an equal preflight must not be reused, since its own work stops with the reason.

    A first model that is declared again after it was promoted is no such reason: what comes next is reused as well.
    """
    if run.intent != CANDIDATE:
        return False
    try:
        champion = champion_of(run)
        if champion is not None:
            refuse_incomparable(run, champion)
    except TrainworthyError:
        return True
    if champion is None:
        return not run.declared.first_model
    return run.declared.first_model and not _made_after(run, champion)


def _made_after(run: StepRun, champion: RegisteredModel) -> bool:
    """True if the champion was made by a run with an equal preflight, so that equal stages follow."""
    preflight = run.workspace.records.of_run(run.use_case.name, "preflight", champion.tags.get("run_id", ""))
    return preflight is not None and preflight.identity == run.identity


def refuse_incomparable(run: StepRun, champion: RegisteredModel) -> None:
    """Raises ChampionError if the champion answers another task, or saw this run's benchmark or days of the embargo.

    The champion itself, trained again on its own version, saw none: its splits are apart from its benchmark.
    """
    declared, spec = run.use_case.spec.dataset, run.use_case.spec.split
    _refuse_other_task(run, champion)
    window = champion_window(run, champion)
    if window.status == "pass":
        return
    back = f"go back to an older champion: trainworthy rollback {run.use_case.name} --reason TEXT"
    versions = f"champion version {champion.version}, this run {declared}"
    if not isinstance(spec, Windows):
        problem = "the champion may have seen rows of this benchmark, so comparing could flatter it"
        raise ChampionError(f"{problem}: {window.evidence}", value=versions, fix=f"{window.fix}; or {back}")
    trained_on = standing(run.use_case, log.read(verdict_log(run)), run.workspace.records).trained_on
    assert trained_on is not None
    published = tuple(read_versions(run.use_case.project)[declared.name])
    # Versions of another dataset come in no order with these.
    same = trained_on.name == declared.name
    newer = waiting(published, (trained_on.version,), declared.version) if same else ()
    fix = f"use a newer dataset version: run config {config_text(dataset_version=newer[0])}" if newer else NOTHING_NEWER
    raise ChampionError(
        f"the champion saw days of this benchmark, so comparing would flatter it and could only end in reject: "
        f"{window.evidence}, embargo {spec.embargo}",
        value=f"champion version {champion.version} of {trained_on}, this run {declared}",
        fix=f"{fix}; or {back}",
    )


def _refuse_other_task(run: StepRun, champion: RegisteredModel) -> None:
    """Other classes, other quantiles, another kind: no figure is of both models."""
    mine, theirs = job_kind(run), artifact_kind(champion.artifact)
    if (mine.name, mine.answer_names) != (theirs.name, theirs.answer_names):
        raise ChampionError(
            "the champion answers another task, so that nothing could be compared",
            value=f"champion version {champion.version}: {_task(theirs)}; declared: {_task(mine)}",
            fix="give the new task a use case of its own, or declare the champion's task",
        )


def _task(kind: Kind) -> str:
    named = [name for name in kind.answer_names if name]
    return f"{kind.name} of {', '.join(named[:5])}{', …' if len(named) > 5 else ''}" if named else kind.name


def champion_window(run: StepRun, champion: RegisteredModel) -> CheckResult:
    """Whether the champion saw nothing of this run's benchmark."""
    contract = judged_contract(run)
    return champion_overlap(champion.tags, run.record("snapshot", Snapshot), run.use_case.spec.split, contract)
