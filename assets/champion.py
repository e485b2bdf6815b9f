"""The champion as the verdict log and the registry both have it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.champion import agreed_champion
from trainworthy.lifecycle.promotion.reuse import Reused, reused_verdict
from trainworthy.lifecycle.protocol.records import Record, Verdict
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.mlflow_model import RegisteredModel
from trainworthy.resources.workspace import Workspace


class Judged(Protocol):
    """Where a use case's verdicts and models are: a step's run, or a rollback."""

    @property
    def use_case(self) -> UseCase: ...
    @property
    def workspace(self) -> Workspace: ...
    @property
    def tracking(self) -> Tracking: ...


def champion_of(run: Judged) -> RegisteredModel | None:
    """The use case's champion. Raises ChampionError if log and alias disagree, RecordError for a broken log."""
    entries, name = log.read(verdict_log(run)), run.use_case.name
    registered = run.tracking.champion(name)
    agreed_champion(entries, name, registered.version if registered else None)
    return registered


def verdict_log(run: Judged) -> Path:
    """The append-only log of the use case's verdicts."""
    return verdict_log_of(run.workspace, run.use_case)


def verdict_log_of(workspace: Workspace, use_case: UseCase) -> Path:
    """The same, without a run."""
    return workspace.state.folder("verdicts", f"{use_case.name}.jsonl")


def reused_before(run: Judged, verdict: Verdict) -> Reused:
    """What is said of a verdict that a run found again. Where nothing was logged, it is the last itself."""
    entries = log.read(verdict_log(run))
    judged = [entry for entry in entries if entry.action != "rollback"]
    last: Record = verdict
    if judged:
        last = run.workspace.records.get(run.use_case.name, "promotion", judged[-1].verdict_sha256)
    assert isinstance(last, Verdict)
    champion = log.champion(entries)
    return reused_verdict(verdict, last, champion.model_version if champion else None)


@contextlib.contextmanager
def judged_alone(workspace: Workspace, use_case: UseCase) -> Iterator[None]:
    """One judgement or rollback of a use case at a time: the later one sees the earlier one's champion."""
    path = workspace.state.folder("verdicts", f"{use_case.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run judges {use_case.name} or rolls it back; waiting for it to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
