"""The champion as the verdict log and the registry both have it."""

from __future__ import annotations

from pathlib import Path

from assets.step import StepRun
from lifecycle.promotion import log
from lifecycle.promotion.champion import agreed_champion
from resources.mlflow import RegisteredModel


def champion_of(run: StepRun) -> RegisteredModel | None:
    """The use case's champion. Raises ChampionError if log and alias disagree, RecordError for a broken log."""
    entries, name = log.read(verdict_log(run)), run.use_case.name
    found = run.tracking.champion(name)
    agreed_champion(entries, name, found.version if found else None, run.tracking.uri)
    return found


def verdict_log(run: StepRun) -> Path:
    """The append-only log of the use case's verdicts."""
    return run.workspace.state.folder("verdicts", f"{run.use_case.name}.jsonl")
