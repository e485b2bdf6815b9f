"""Alerts of a validation: each finding of a step once to the log and the webhook, and its recovery once.

No failing receiver breaks a run: what was not delivered is said in the run's log, and tried again by the next run.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

import contextlib
import fcntl
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import dagster as dg

from trainworthy.lifecycle.alert import Alert, Judged, after_telling, read_told, recovered, unsent, write_told
from trainworthy.lifecycle.errors import DatasetError, NotifierError
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Step
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.notifier import LogNotifier, webhook
from trainworthy.resources.workspace import Intent, Workspace

JUDGING: tuple[Step, ...] = ("dataset", "snapshot")


def announcing_hooks(use_case: UseCase) -> set[dg.HookDefinition]:
    """Hooks of a job that announce what the checks of dataset and snapshot found, whether they passed or not."""
    needed = {"workspace", "intent"}

    @dg.success_hook(name=f"{use_case.name}__announce_passed", required_resource_keys=needed)
    def passed(context: dg.HookContext) -> None:
        _announce_step(context, use_case)

    @dg.failure_hook(name=f"{use_case.name}__announce_failed", required_resource_keys=needed)
    def failed(context: dg.HookContext) -> None:
        _announce_step(context, use_case)

    return {passed, failed}


def announce(
    workspace: Workspace, use_case: UseCase, step: str, run_id: str, checks: Iterable[CheckResult], log: logging.Logger
) -> None:
    """Tell what people do not know yet, remember it, and take back what holds again; a receiver can't break it."""
    dataset, checks = str(use_case.spec.dataset), tuple(checks)
    judged = Judged(use_case=use_case.name, dataset=dataset, step=step, run_id=run_id)
    published = [f"{use_case.spec.dataset.name}@{version}" for version in _readable_versions(use_case)]
    path = workspace.state.folder("alerts", f"{use_case.name}.json")
    with _alone(path):
        known = before = read_told(path)
        for alert, entry in unsent(judged, checks, known):
            known = after_telling(known, entry) if _delivered(alert, log) else known
        for alert, closed in recovered(judged, checks, known, published):
            if _delivered(alert, log):
                known = tuple(told for told in known if told not in closed)
        if known != before:
            write_told(path, known)


def published_versions(use_case: UseCase) -> tuple[str, ...]:
    """Every published version of the use case's dataset, in the order of publication."""
    return tuple(read_versions(use_case.project).get(use_case.spec.dataset.name, {}))


def _readable_versions(use_case: UseCase) -> tuple[str, ...]:
    """None where data/versions.yaml can't be read: that is a finding itself, and has to be told."""
    try:
        return published_versions(use_case)
    except DatasetError:
        return ()


def _announce_step(context: dg.HookContext, use_case: UseCase) -> None:
    """Announce what the step's record holds; of a step without one, why it was refused."""
    steps: dict[str, Step] = {f"{use_case.name}__{step}": step for step in JUDGING}
    if (step := steps.get(context.op.name)) is None:
        return
    workspace: Workspace = context.resources.workspace
    intent: Intent = context.resources.intent
    error, record = context.op_exception, workspace.records.of_run(use_case.name, step, context.run_id)
    if error is not None and not isinstance(error, Exception):
        return  # cancelled, which says nothing of the data
    if record is None or not (error is None or isinstance(error, dg.Failure)):
        checks: tuple[CheckResult, ...] = (_completed(error),)
    else:
        checks = (*record.checks, _completed(None)) if error is None else record.checks
    announce(workspace, use_case.at_version(intent.dataset_version), step, context.run_id, checks, context.log)


def _completed(error: BaseException | None) -> CheckResult:
    """Whether the step could begin. Only a message of our own is passed on: another one may quote a value."""
    if error is None:
        return CheckResult(name="completed", status="pass", evidence="the step has its result again")
    ours = isinstance(error, dg.Failure) and error.description
    told = str(ours).partition("\n")[2] if ours else f"{type(error).__name__}, see the log of the run"
    return CheckResult(name="completed", status="error", evidence=told)


def _delivered(alert: Alert, log: logging.Logger) -> bool:
    """True if every receiver took the alert."""
    LogNotifier(log.info if alert.severity == "recovered" else log.warning).send(alert)
    try:
        if (receiver := webhook()) is not None:
            receiver.send(alert)
    except NotifierError as error:
        log.warning(f"alert not delivered: {error}")
        return False
    return True


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One validation of a use case tells at a time, so that two that run at once do not tell the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
