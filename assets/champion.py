"""The champion as the verdict log and the registry both have it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from trainworthy.lifecycle.errors import ChampionError, LeaseLostError
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.champion import agreed_champion
from trainworthy.lifecycle.promotion.judged import artifacts_of
from trainworthy.lifecycle.promotion.log import LogEntry, VerdictLog
from trainworthy.lifecycle.promotion.reuse import Reused, reused_verdict
from trainworthy.lifecycle.protocol.records import Record, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.store import HeldLease
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
    version = agreed_champion(entries, name, registered.version if registered else None)
    if version is not None:
        refuse_other_model(registered, name, version, artifacts_of(entries, run.workspace.records).get(version))
    return registered


def verdict_log(run: Judged) -> VerdictLog:
    """The append-only log of the use case's verdicts."""
    return verdict_log_of(run.workspace, run.use_case)


def verdict_log_of(workspace: Workspace, use_case: UseCase) -> VerdictLog:
    """The same, without a run."""
    return VerdictLog(workspace.shared, use_case.name)


def reused_before(run: Judged, verdict: Verdict) -> Reused:
    """What is said of a verdict that a run found again. Where nothing was logged, it is the last itself."""
    entries = log.read(verdict_log(run))
    judged = log.last_judged(entries)
    last: Record = verdict
    if judged is not None:
        last = run.workspace.records.get(run.use_case.name, "promotion", judged.verdict_sha256)
    assert isinstance(last, Verdict)
    champion = log.champion(entries)
    return reused_verdict(verdict, last, champion.model_version if champion else None)


@contextlib.contextmanager
def judged_alone(workspace: Workspace, use_case: UseCase) -> Iterator[HeldLease]:
    """One judgement or rollback of a use case at a time: the later one sees the earlier one's champion.

    Gives the lease by which its log is written and its alias moved.
    """
    workspace.require_shared()

    def say_waiting() -> None:
        say(f"another run judges {use_case.name} or rolls it back; waiting for it to end")

    with verdict_log_of(workspace, use_case).lease(say_waiting) as held:
        yield held


def refuse_other_model(registered: RegisteredModel | None, name: str, version: str, judged_sha256: str | None) -> None:
    """Raises ChampionError unless the registry's version is the model that was judged, by the hash of its files.

    `registered` is None if the registry has no such version, `judged_sha256` if the verdict's record is gone; then, and
    of a version from before the tag, there is nothing to compare.
    """
    tagged = registered.tags.get("artifact_sha256") if registered is not None else None
    other = None not in (tagged, judged_sha256) and tagged != judged_sha256
    if registered is None or other:
        raise ChampionError(
            f"{name} version {version} of this registry is another model than the one that was promoted"
            if other
            else f"this registry has no {name} version {version}, which the verdict log has as champion",
            value={"promoted": judged_sha256, "registered": tagged},
            fix="name the registry that this log's verdicts promoted in (MLFLOW_TRACKING_URI), or the state that "
            "belongs to this one (TRAINWORTHY_VAR, TRAINWORTHY_STATE)",
            code="champion.other_registry",
        )


def enter(
    run: Judged, held: HeldLease, *, action: log.Action, model_version: str, verdict_sha256: str,
    previous_verdict_sha256: str | None, reason: str = "",
) -> LogEntry:  # fmt: skip
    """Enter a verdict or a rollback in the log. Raises ChampionError, and enters nothing, where it would move the alias
    and another has moved it meanwhile.

    The lease keeps apart those that share a state; two states that promote in one registry have two. Between this look
    and the move lie milliseconds, and not the minutes of a judgement.
    """
    verdicts = verdict_log(run)
    if action in ("promote", "rollback"):
        entry, registered = log.champion(log.read(verdicts)), run.tracking.aliased(run.use_case.name)
        _refuse_moved(run.use_case.name, entry, registered)
    return log.append(
        verdicts, held, action=action, model_version=model_version, verdict_sha256=verdict_sha256,
        previous_verdict_sha256=previous_verdict_sha256, reason=reason,
    )  # fmt: skip


def _refuse_moved(name: str, entry: LogEntry | None, registered: RegisteredModel | None) -> None:
    logged, aliased = entry and entry.model_version, registered and registered.version
    if logged != aliased:
        raise ChampionError(
            f"the alias champion of {name} was moved while this run judged; nothing is entered",
            value={"judged against": logged, "alias": aliased},
            fix="where another machine promotes in this registry, name one TRAINWORTHY_STATE for both "
            "(docs/how-to/deploy.md) and run again; where somebody moved it by hand: trainworthy doctor --fix",
            code="champion.moved",
        )


def refuse_alias_of_another_log(
    tracking: Tracking, records: StateRecords, name: str, entries: tuple[LogEntry, ...]
) -> None:
    """Raises ChampionError if the alias points to a model of Trainworthy's that this log never entered, unless a run of
    this state judged or registered it.

    Another state's verdict may have promoted it: two that make the alias follow their own log would take turns. A
    version is registered long before its verdict is entered: a run that was killed in between, or that another one
    overtook, leaves one that no log has, and somebody may have pointed the alias there.
    """
    registered = tracking.aliased(name)
    if registered is None or "artifact_sha256" not in registered.tags:
        return
    logged = {entry.model_version for entry in entries}
    if registered.version in logged:
        return
    run_id = tracking.run_of_version(name, registered.version)
    if run_id is not None and run_id in records.run_ids(name):
        return
    raise ChampionError(
        f"the alias champion of {name} points to version {registered.version}, which this verdict log never entered "
        "and no run here is known to have made: another state promoted it, or somebody moved the alias by hand",
        value={"verdict log": sorted(logged), "alias": registered.version, "of run": run_id},
        fix="where another state promotes in this registry, name one TRAINWORTHY_STATE for both "
        f"(docs/how-to/deploy.md); where this log is the one that counts, remove the alias champion of {name} in "
        "MLflow, then trainworthy doctor --fix",
        code="champion.other_log",
    )


def move_alias(tracking: Tracking, name: str, held: HeldLease, version: str, previous: str | None) -> None:
    """Let the registry's alias follow the entry in the log. Raises LeaseLostError, and moves nothing, once another
    has the lease.

    A registry has no tokens: who sleeps between the look and the move can still leave an alias that the log does not
    have, which every later step refuses and `doctor --fix` mends.
    """
    try:
        held.check()
    except LeaseLostError as error:
        # Not the log's own error, by which nothing was entered.
        raise LeaseLostError(
            f"{name} version {version} is entered in the verdict log, but the alias champion did not follow: "
            "another run took the lease first",
            value=error.value,
            fix="once the other has ended: trainworthy doctor --fix makes the alias follow the log's newest champion",
            code="alias_behind",
        ) from None
    tracking.set_champion(name, version, previous)
