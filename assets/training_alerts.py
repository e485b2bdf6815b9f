"""What is sent of trainings: a run that stopped or cost too much, incidents, verdicts and rollbacks.

A stop and a budget are findings, closed by the next run that passes the step. The others are events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainworthy.assets.champion import verdict_log_of
from trainworthy.lifecycle.alert import About, AlertState, Subject, evidence_of, with_event, with_findings
from trainworthy.lifecycle.errors import RecordError, TrainworthyError
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.gates.stage import BUDGET, ROWS_FOLLOW
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.records import DatasetVersion, Record, StageReport, Verdict
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.workspace import Workspace

# The checks of money that are known by step and name.
_MONEY = ("preflight/cost_forecast", "promotion/cost")


def about(use_case: UseCase, subject: Subject, step: str, run_id: str) -> About:
    """The step of a run, on the use case's dataset version."""
    dataset = str(use_case.spec.dataset)
    return About(use_case=use_case.name, subject=subject, dataset=dataset, step=step, run_id=run_id)


def with_stop(
    state: AlertState, use_case: UseCase, step: str, run_id: str, checks: Sequence[CheckResult]
) -> AlertState:
    """The state after a step of a training that ended with these checks."""
    closed = stopping(checks)
    money = [check for check in closed if _is_of_money(step, check)]
    other = [check for check in closed if not _is_of_money(step, check)]
    by_subject: tuple[tuple[Subject, list[CheckResult]], ...] = (("stopped run", other), ("budget", money))
    for subject, stops in by_subject:
        if stops or not closed:
            state = with_findings(state, about(use_case, subject, step, run_id), (_in_one(subject, step, stops),))
    return state


def with_incidents_of(
    state: AlertState, use_case: UseCase, step: str, run_id: str, record: Record | None
) -> AlertState:
    """The state with the incidents that a stage's record names."""
    alarms = record.alarms if isinstance(record, StageReport) else ()
    return with_incidents(state, about(use_case, "incident", step, run_id), alarms)


def with_incidents(state: AlertState, about: About, alarms: Iterable[Alarm]) -> AlertState:
    """The state with an alert for each alarm that left an incident; the keys of its rows stay here."""
    for alarm in alarms:
        if alarm.incident is None:
            continue
        evidence = f"{alarm.symptom}: {alarm.evidence}; cause: {alarm.cause}; action: {alarm.action}"
        fix = f"{alarm.fix}; replay: trainworthy replay {alarm.incident}"
        check = CheckResult(name=alarm.monitor, status="fail", evidence=f"update {alarm.step}: {evidence}", fix=fix)
        severity = "error" if alarm.severity == "critical" else "warning"
        state = with_event(state, about, check, severity, alarm.incident)
    return state


def with_judgements(
    state: AlertState, workspace: Workspace, use_case: UseCase, run_id: str, *, judged: bool
) -> AlertState:
    """The state with an alert for each entry of the verdict log that had none: what is not sent of a run that was
    killed is sent of the next one. At the first look only what the run itself wrote counts, if it `judged`.

    Nothing of a log that cannot be trusted: each step that reads it stops with the reason.
    """
    try:
        entries = log.read(verdict_log_of(workspace, use_case))
    except RecordError:
        return state
    known = state.judgements
    first = min(known, len(entries)) if known is not None else len(entries) - (1 if judged and entries else 0)
    for number, entry in enumerate(entries[first:], first):
        state = _with_judgement(state, workspace, use_case, run_id, entries[:number], entry)
    return state.model_copy(update={"judgements": len(entries)})


def with_refused_rollback(state: AlertState, use_case: UseCase, run_id: str, error: TrainworthyError) -> AlertState:
    """The state with a rollback that changed nothing."""
    check = CheckResult(name="rollback", status="error", evidence=f"refused: {error.problem}", fix=error.fix)
    return with_event(state, about(use_case, "rollback", "promotion", run_id), check, "error", run_id)


def _with_judgement(
    state: AlertState, workspace: Workspace, use_case: UseCase, run_id: str, before: tuple[LogEntry, ...],
    entry: LogEntry,
) -> AlertState:  # fmt: skip
    dataset, judged_by, reasons = _judged(workspace, use_case, entry)
    if entry.action == "rollback":
        left = log.champion(before)
        withdrawn = f", version {left.model_version} is withdrawn" if left else ""
        evidence = f"the champion is version {entry.model_version} again{withdrawn}: {entry.reason}"
        subject, run = "rollback", run_id
    else:
        evidence = f"{entry.action}, version {entry.model_version}: {reasons}"
        subject, run = "verdict", judged_by
    about = About(use_case=use_case.name, subject=subject, dataset=dataset, step="promotion", run_id=run)
    return with_event(state, about, CheckResult(name=entry.action, status="pass", evidence=evidence), "info",
                      entry.entry_sha256)  # fmt: skip


def _judged(workspace: Workspace, use_case: UseCase, entry: LogEntry) -> tuple[str, str, str]:
    """Dataset version, run and reasons of the entry's verdict; empty where its record is gone."""
    try:
        verdict = workspace.records.get(use_case.name, "promotion", entry.verdict_sha256)
        dataset = workspace.records.get(use_case.name, "dataset", verdict.parents["dataset"])
    except RecordError:
        return "", "", "the record of the verdict is gone"
    assert isinstance(verdict, Verdict)
    assert isinstance(dataset, DatasetVersion)
    return f"{dataset.name}@{dataset.revision}", verdict.provenance.run_id, " ".join(verdict.reasons)


def _is_of_money(step: str, check: CheckResult) -> bool:
    named = f"{step}/{check.name}" in _MONEY or check.name == "remaining_cost"
    return check.code == BUDGET or (named and check.status == "fail")


def _in_one(subject: Subject, step: str, stops: Sequence[CheckResult]) -> CheckResult:
    """The checks that stopped a step as one, which passes without any. Another check that stops is another finding."""
    name = subject.replace(" ", "_")
    if not stops:
        return CheckResult(name=name, status="pass", evidence=f"{step} passed")
    words = [f"{check.name}: {_without_values(check)}" for check in stops]
    fixes = dict.fromkeys(check.fix for check in stops if check.fix)
    parts = [{"check": check.name, "code": check.code, "found": check.status, "why": _why(check)} for check in stops]
    trials = [{"check": trial.check, "found": trial.status} for trial in trials_of(stops) if trial.status != "pass"]
    return CheckResult(
        name=name,
        status="fail",
        evidence=f"{step}: {'; '.join(words)}",
        fix="; ".join(fixes),
        details=(*parts, *trials),
    )


def _without_values(check: CheckResult) -> str:
    """The check's words without keys of rows, and without those of a trial that raised: they quote values, too."""
    untried = [trial.check for trial in trials_of([check]) if trial.status == "error"]
    evidence = f"{', '.join(untried)} could not be tried, see the report"
    return evidence if untried else evidence_of(check).partition(ROWS_FOLLOW)[0]


def _why(check: CheckResult) -> str:
    """What tells one error of a step from another; the other checks are told apart by name and code."""
    return re.sub(r"\d+", "", _without_values(check)) if check.name == "completed" else ""
