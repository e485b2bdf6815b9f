"""What a candidate is asked about the champion before anything is spent on its training."""

from __future__ import annotations

from assets.champion import champion_of, verdict_log
from assets.step import StepRun
from lifecycle.data.versions import read_versions
from lifecycle.errors import ChampionError, TrainworthyError
from lifecycle.evaluation.window import window_check
from lifecycle.promotion import log
from lifecycle.promotion.decide import check_first_model
from lifecycle.promotion.judged import NOTHING_NEWER, standing, waiting
from lifecycle.records import Snapshot
from lifecycle.run_config import config_text
from lifecycle.use_case import days
from resources.mlflow import RegisteredModel


def refuse_candidate(run: StepRun) -> None:
    """Raises ChampionError for a candidate whose verdict could only be reject, before anything is spent on it."""
    if run.intent != "candidate":
        return
    champion = champion_of(run)
    check_first_model(run.use_case.folder, run.declared.first_model, champion.version if champion else None)
    if champion is not None:
        refuse_incomparable(run, champion)


def candidate_is_refused(run: StepRun) -> bool:
    """True if an equal preflight must not be reused, since its own work stops with the reason.

    A first model that is declared again after it was promoted is no such reason: what comes next is reused as well.
    """
    if run.intent != "candidate":
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
    found = run.workspace.records.of_run(run.use_case.name, "preflight", champion.tags.get("run_id", ""))
    return found is not None and found.identity == run.identity


def refuse_incomparable(run: StepRun, champion: RegisteredModel) -> None:
    """Raises ChampionError if the champion saw days of this run's benchmark, or of the embargo before it.

    The champion itself, trained again on its own version, saw none: its splits end before its benchmark.
    """
    snapshot, declared = run.record("snapshot", Snapshot), run.use_case.spec.dataset
    embargo = days(run.use_case.spec.split.embargo)
    window = window_check(champion_ends(champion), snapshot.splits["benchmark"].start, embargo)
    if window.status == "pass":
        return
    trained_on = standing(run.use_case, log.read(verdict_log(run)), run.workspace.records).trained_on
    assert trained_on is not None
    published = tuple(read_versions(run.use_case.project)[declared.name])
    # Versions of another dataset come in no order with these.
    same = trained_on.name == declared.name
    newer = waiting(published, (trained_on.version,), declared.version) if same else ()
    fix = f"use a newer dataset version: run config {config_text(dataset_version=newer[0])}" if newer else NOTHING_NEWER
    raise ChampionError(
        f"the champion saw days of this benchmark, so comparing would flatter it and could only end in reject: "
        f"{window.evidence}, embargo {embargo} days",
        value=f"champion version {champion.version} of {trained_on}, this run {declared}",
        fix=f"{fix}; or go back to an older champion: rollback_{run.use_case.name}",
    )


def champion_ends(champion: RegisteredModel) -> dict[str, str]:
    """The last day that the champion saw, by split; empty text where its tags do not say."""
    return {
        "champion's training": champion.tags.get("trained_until", ""),
        "champion's calibration": champion.tags.get("calibrated_until", ""),
    }
