"""Alerts: what people are sent about data, trainings, verdicts and rollbacks, each once, its recovery once.

A finding, such as late data or a stopped run, is open until its check passes again; an event, such as a verdict, is not
taken back. AlertState is all that is remembered of a use case: open findings, events that were sent, and the alerts
that wait for a receiver. It is written before an alert is sent and again after it, so that a crash loses none: what
was sent and not yet written is sent a second time, equal in every field.

An Alert holds words and counts, never a row: a check's `details` stay in the state folder and in Dagster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trainworthy.lifecycle.errors import FROM_WORKER
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic

MOST_EVIDENCE = 800
# What a finding about data is called; a check that is not named here is called by its own name.
_WHAT = {"completed": "data not judged", "content_hash": "changed data"}
_KINDS = {"row_count": "volume", "type": "schema change"}
_BROKEN = ("fail", "error")


Subject = Literal["data", "late data", "stopped run", "budget", "incident", "verdict", "rollback"]
Severity = Literal["error", "warning", "info", "recovered"]


class About(Frozen):
    """What an alert is about: a step of a run on a dataset version, such as flights@v12."""

    use_case: str
    subject: Subject
    dataset: str
    step: str
    run_id: str


class Alert(About):
    """A finding, its recovery or an event, for people.

    `check` says what found it. `key` is equal for a finding and its recovery.
    """

    check: str
    what: str
    severity: Severity
    evidence: str
    fix: str
    key: str

    @property
    def text(self) -> str:
        """On one line."""
        head = f"{self.what}: {self.dataset} of {self.use_case} ({self.severity})"
        return f"{head}: {self.evidence}" + (f"; fix: {self.fix}" if self.fix else "")


class SentFinding(About):
    """A finding or an event that has its alert. `finding` changes with what was found, not with its figures."""

    check: str
    finding: str
    what: str

    @property
    def place(self) -> tuple[str, ...]:
        """Where only one finding is open at a time."""
        return (self.subject, self.dataset, self.step, self.check)

    @property
    def key(self) -> str:
        """The key of its alerts."""
        return sha256_json([self.use_case, *self.place, self.finding])[:16]


class AlertState(Frozen):
    """What was sent of a use case, and the alerts that wait for a receiver, oldest first.

    `judgements` are the entries of the verdict log that alerts were made of, None before the first look at it.
    """

    sent: tuple[SentFinding, ...] = ()
    waiting: tuple[Alert, ...] = ()
    judgements: int | None = None

    def with_alert(self, alert: Alert) -> AlertState:
        """The state with one more alert to send."""
        return self.model_copy(update={"waiting": (*self.waiting, alert)})


def severity_of(check: CheckResult) -> Severity | None:
    """Whether the check is worth an alert: it stops, or it or one of its parts fails as a warning."""
    if check.stops:
        return "error"
    if check.status in _BROKEN and check.severity == "warning":
        return "warning"
    noted = any(part.get("status") in _BROKEN and part.get("severity") == "warning" for part in check.details)
    return "warning" if noted else None


def evidence_of(check: CheckResult) -> str:
    """The check's words; of what was raised in the worker the class alone, since a message quotes values of rows."""
    if not check.code.startswith(FROM_WORKER):
        return check.evidence
    return f"the worker stopped ({check.code.removeprefix(FROM_WORKER).replace('_', ' ')}), see the log of the run"


def what(subject: Subject, check: CheckResult) -> str:
    """What happened, in a few words: the subject, or of data the kinds of the broken rules, or the check's name."""
    if subject != "data":
        return subject
    broken = [part for part in check.details if part.get("status") in _BROKEN and part.get("severity") != "info"]
    if check.name != "contract" or not broken:
        return _WHAT.get(check.name, check.name.replace("_", " "))
    # A rule on a missing column can't be evaluated: the rule of its type says that the schema changed.
    failed = [part for part in broken if part["status"] == "fail"] or broken
    return ", ".join(sorted({_KINDS.get(str(part.get("kind")), "contract broken") for part in failed}))


def finding_of(check: CheckResult) -> str:
    """Hash of what was found: status, words without figures, and the texts of the broken parts."""
    parts = [part for part in check.details if part.get("status", "fail") in _BROKEN]
    texts = sorted({text for part in parts for text in _texts({**part, "observed": "", "error": ""})})
    words = "" if texts else re.sub(r"\d+", "", check.evidence)
    return sha256_json([check.name, check.status, check.severity, words, texts])


def with_findings(
    state: AlertState, about: About, checks: Iterable[CheckResult], published: Sequence[str] = ()
) -> AlertState:
    """The state after the checks of a step: an alert for what is new, and one for what holds again.

    Args:
        published: every published version in the order of publication; what is found in one is closed by it or by a
            later one. A finding of another version is closed by any.
    """
    later = set(published[published.index(about.dataset) + 1 :]) if about.dataset in published else set()
    for check in checks:
        severity = severity_of(check)
        if severity is not None:
            state = _with_finding(state, about, check, severity)
        elif check.status in ("pass", "not_applicable"):
            place = (about.subject, about.step, check.name)
            closed = [finding for finding in state.sent if (finding.subject, finding.step, finding.check) == place]
            state = _recovered(state, about, check, [finding for finding in closed if finding.dataset not in later])
    return state


def with_event(state: AlertState, about: About, check: CheckResult, severity: Severity, name: str) -> AlertState:
    """The state after an event, told by the words of `check` and known by `name`: nothing closes it."""
    entry = SentFinding(**about.model_dump(), check=check.name, finding=name, what=what(about.subject, check))
    if any(_same(entry, other) for other in state.sent):
        return state
    return _remembered(state, (*state.sent, entry)).with_alert(_alert(entry, check, severity))


def _with_finding(state: AlertState, about: About, check: CheckResult, severity: Severity) -> AlertState:
    """The finding takes the place of another one of the same check and version."""
    entry = SentFinding(
        **about.model_dump(), check=check.name, finding=finding_of(check), what=what(about.subject, check)
    )
    if any(_same(entry, other) for other in state.sent):
        return state
    others = (other for other in state.sent if other.place != entry.place)
    return _remembered(state, (*others, entry)).with_alert(_alert(entry, check, severity))


def _recovered(state: AlertState, about: About, check: CheckResult, closed: Sequence[SentFinding]) -> AlertState:
    """Without the closed findings. One whose alert still waits was never heard of, and needs no recovery."""
    if not closed:
        return state
    keys = {finding.key for finding in closed}
    unheard = {alert.key for alert in state.waiting if alert.key in keys and alert.severity != "recovered"}
    state = _remembered(state, (finding for finding in state.sent if finding not in closed))
    waiting = tuple(alert for alert in state.waiting if alert.key not in unheard)
    state = state.model_copy(update={"waiting": waiting})
    heard = [finding for finding in closed if finding.key not in unheard]
    if not heard:
        return state
    last = heard[-1].model_copy(update={"dataset": about.dataset, "run_id": about.run_id})
    alert = _alert(last, check, "recovered").model_copy(update={"key": heard[-1].key, "fix": ""})
    return state.with_alert(alert)


def _alert(entry: SentFinding, check: CheckResult, severity: Severity) -> Alert:
    return Alert(
        **entry.model_dump(exclude={"finding"}), key=entry.key, severity=severity,
        evidence=_in_line(evidence_of(check)), fix=_in_line(check.fix),
    )  # fmt: skip


def _remembered(state: AlertState, sent: Iterable[SentFinding]) -> AlertState:
    return state.model_copy(update={"sent": tuple(sent)})


def read_alerts(path: Path) -> AlertState:
    """What is remembered; nothing of a file that is missing or broken: open findings are sent again."""
    try:
        return AlertState.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return AlertState()


def write_alerts(path: Path, state: AlertState) -> None:
    """Replace the file at once."""
    write_atomic(path, state.model_dump_json(indent=1).encode())


def _same(first: SentFinding, second: SentFinding) -> bool:
    return first.model_dump(exclude={"run_id", "what"}) == second.model_dump(exclude={"run_id", "what"})


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value; rows and figures do not name a finding."""
    if isinstance(value, str):
        yield value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        if key not in ("rows", "rows_withheld"):
            yield from _texts(item)


def _in_line(text: str) -> str:
    line = without_credentials(" ".join(text.split()))
    return line if len(line) <= MOST_EVIDENCE else f"{line[:MOST_EVIDENCE]} …"
