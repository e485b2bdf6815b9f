"""Alerts are sent: each finding and event of a run once to the webhook, and the recovery of a finding once.

What is sent of a validation is what the checks of its data found; what is sent of a training stands in
training_alerts.py. No failing receiver breaks a run: what was not delivered is said in the run's log and waits in the
state folder for the next run of the use case.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

import contextlib
import fcntl
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dagster as dg

from trainworthy.assets import ci, training_alerts
from trainworthy.assets.step_run import INTENT_TAG, VALIDATION, StepRun
from trainworthy.assets.stopped import error_check
from trainworthy.assets.track import first_step
from trainworthy.lifecycle.alert import (
    AlertState,
    Subject,
    read_alerts,
    with_findings,
    write_alerts,
)
from trainworthy.lifecycle.errors import DatasetError, NotifierError, TrainworthyError, WorkerError
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.gates.baseline import readable_baseline, with_accepted
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Record, Step
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.notifier import LogNotifier, webhook
from trainworthy.resources.workspace import Workspace

# Of the steps that a validation judges; what it asks of the clock is announced by freshness.py.
JUDGING: tuple[Step, ...] = ("dataset", "snapshot")
Change = Callable[[AlertState], AlertState]


@contextlib.contextmanager
def announced(context: dg.AssetExecutionContext, workspace: Workspace, use_case: UseCase, step: Step) -> Iterator[None]:
    """Around a step: when it ends, what is to be sent of it is sent. A preflight for a pull request sends nothing.

    Nothing is sent of a step that was cancelled.
    """
    ended: BaseException | None = None
    try:
        yield
    except BaseException as error:
        ended = error
        raise
    finally:
        if ended is None or isinstance(ended, Exception):
            intent = context.run.tags.get(INTENT_TAG, "")
            with _breaking_nothing(context.log, step):
                if intent == VALIDATION and step in JUDGING:
                    _announce_validated(context, workspace, use_case, step, ended)
                elif intent not in (VALIDATION, ci.PREFLIGHT):
                    _announce_trained(context, workspace, use_case, step, ended)


def announce_checks(
    workspace: Workspace, use_case: UseCase, subject: Subject, step: str, run_id: str, checks: Iterable[CheckResult],
    log: logging.Logger, *, again: bool = False,
) -> None:  # fmt: skip
    """Send what the checks of the use case's dataset version found, and what holds again."""
    about = training_alerts.about(use_case, subject, step, run_id)
    published = [f"{use_case.spec.dataset.name}@{version}" for version in _readable_versions(use_case)]
    announce(workspace, use_case, log, lambda state: with_findings(state, about, checks, published), again=again)


def announce_incidents(run: StepRun, alarms: Iterable[Alarm]) -> None:
    """Send what a training's monitors recorded, while it goes on."""
    with_incident = tuple(alarm for alarm in alarms if alarm.incident is not None)
    if not with_incident:
        return
    about = training_alerts.about(run.use_case, "incident", run.step, run.run_id)
    with _breaking_nothing(run.context.log, "incidents"):
        announce(
            run.workspace, run.use_case, run.context.log,
            lambda state: training_alerts.with_incidents(state, about, with_incident),
        )  # fmt: skip


def announce_rollback(
    workspace: Workspace, use_case: UseCase, run_id: str, log: logging.Logger, refused: TrainworthyError | None = None
) -> None:
    """Send that the champion before is live again, or why it is not."""

    def change(state: AlertState) -> AlertState:
        if refused is not None:
            return training_alerts.with_refused_rollback(state, use_case, run_id, refused)
        return training_alerts.with_judgements(state, workspace, use_case, run_id, judged=True)

    with _breaking_nothing(log, "the rollback"):
        announce(workspace, use_case, log, change)


def announce(
    workspace: Workspace, use_case: UseCase, log: logging.Logger, change: Change, *, again: bool = False
) -> None:
    """Change what is remembered of the use case, and send the alerts that wait if there is a new one, or `again`.

    The state is written before an alert is sent, and again once it was: a crash loses none, and may send one twice.
    """
    path = workspace.state.folder("alerts", f"{use_case.name}.json")
    with _alone(path):
        before = read_alerts(path)
        state = change(before)
        if state != before:
            write_alerts(path, state)
        new = [alert for alert in state.waiting if alert not in before.waiting]
        for alert in new:
            # What the log of a training says itself is not said twice.
            if alert.subject in ("data", "late data"):
                LogNotifier(log.info if alert.severity == "recovered" else log.warning).send(alert)
        if new or (again and state.waiting):
            _deliver(path, state, log)


def _deliver(path: Path, state: AlertState, log: logging.Logger) -> None:
    """Send what waits, oldest first. After one that is not taken all wait: a dead receiver costs one timeout.

    It is tried last then, so that one that a receiver never takes holds up no other.
    """
    try:
        receiver = webhook()
        while state.waiting:
            alert, *rest = state.waiting
            state = state.model_copy(update={"waiting": (*rest, alert)})
            if receiver is not None:
                receiver.send(alert)
                log.info(f"alert sent: {alert.what} ({alert.severity})")
            state = state.model_copy(update={"waiting": tuple(rest)})
            write_alerts(path, state)
    except NotifierError as error:
        log.warning(f"alert not delivered: {error}")
        write_alerts(path, state)


def published_versions(use_case: UseCase) -> tuple[str, ...]:
    """Every published version of the use case's dataset, in the order of publication."""
    return tuple(read_versions(use_case.project).get(use_case.spec.dataset.name, {}))


def _readable_versions(use_case: UseCase) -> tuple[str, ...]:
    """None where data/versions.yaml can't be read: that is a finding itself, and has to be told."""
    try:
        return published_versions(use_case)
    except DatasetError:
        return ()


def _announce_validated(
    context: dg.AssetExecutionContext, workspace: Workspace, use_case: UseCase, step: Step, error: BaseException | None
) -> None:
    """Send what the step's record holds; of a step without one, why it was refused."""
    run_id = context.run.run_id
    measured = _checks(workspace.records.of_run(use_case.name, step, run_id), error)
    checks = with_accepted(step, measured, readable_baseline(use_case.folder))
    again = step == first_step(context)
    announce_checks(workspace, use_case, "data", step, run_id, checks, context.log, again=again)


def _announce_trained(
    context: dg.AssetExecutionContext, workspace: Workspace, use_case: UseCase, step: Step, error: BaseException | None
) -> None:
    """Send why a training stopped or that it passes the step again, its incidents, and each verdict."""
    run_id = context.run.run_id
    record = workspace.records.of_run(use_case.name, step, run_id)
    checks = _checks(record, error)

    def change(state: AlertState) -> AlertState:
        state = training_alerts.with_incidents_of(state, use_case, step, run_id, record)
        state = training_alerts.with_stop(state, use_case, step, run_id, checks)
        return training_alerts.with_judgements(state, workspace, use_case, run_id, judged=step == "promotion")

    announce(workspace, use_case, context.log, change, again=step == first_step(context))


def _checks(record: Record | None, error: BaseException | None) -> tuple[CheckResult, ...]:
    """The record's checks, and whether the step came to its result."""
    if record is None or not (error is None or isinstance(error, dg.Failure)) or (error and record.passed):
        return (_completed(error),)
    return (*record.checks, _completed(None)) if error is None else record.checks


def _completed(error: BaseException | None) -> CheckResult:
    """Whether the step could begin. Only a message of our own is passed on: another one may quote a value."""
    if error is None:
        return CheckResult(name="completed", status="pass", evidence="the step has its result again")
    if isinstance(error, dg.Failure) and isinstance(error.__context__, WorkerError):
        return error_check(error.__context__)
    ours = isinstance(error, dg.Failure) and error.description
    evidence = str(ours).partition("\n")[2] if ours else f"{type(error).__name__}, see the log of the run"
    return CheckResult(name="completed", status="error", evidence=evidence)


@contextlib.contextmanager
def _breaking_nothing(log: logging.Logger, what: str) -> Iterator[None]:
    """An alert is less than what it is about: whatever breaks here, the run goes on."""
    try:
        yield
    except Exception as error:
        log.warning(f"no alert was made of {what}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One run of a use case sends at a time, so that two that run at once do not send the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
