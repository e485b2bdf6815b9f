"""Accepted warnings: baseline.yaml of a use case, and what of a step's checks is new beside it.

A finding is known by step, check, code and subject (a column, a rule, a monitor, what a check looked at), never by its
words. A warning can be accepted; what stops a step cannot, since the severity of a check is declared elsewhere, and a
file of exceptions beside it would be a second, hidden declaration. Nothing here is in a step's identity: records stay
as they are, and only what people are shown and sent is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import RENAMED, CheckResult
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.unique_keys import yaml_mistake

FILE = "baseline.yaml"
# How much further from its threshold a value may lie than the accepted one: two runs differ by their rows.
FURTHER = 1.1
# What the check `references` calls what `beyond_linear` warned of: a simpler model of the same rows is as good.
NO_MORE_THAN_LINEAR = "less"
_BROKEN = ("fail", "error", "warning")
# What in a check's details names a part of it. Dates and figures do not: they differ from run to run.
_NAMING = ("monitor", "rule", "family", "statistic", "kind", "split", "column", "columns")
_FIX = "restore the file from git, or remove it and accept anew: trainworthy baseline <use case> --reason …"


class Finding(Frozen):
    """A warning: where it is from, what it is about, and how far it went."""

    step: str
    check: str
    code: str = ""
    subject: str = ""
    status: str = "fail"
    observed: float | None = None
    threshold: float | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """By which it is known again."""
        return (self.step, self.check, self.code, self.subject)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.step}/{self.check}" + (f" ({self.subject})" if self.subject else "")


class Accepted(Finding):
    """A finding that somebody accepted."""

    reason: str
    accepted_on: date
    accepted_by: str = ""


class Baseline(Frozen):
    """The accepted findings of a use case."""

    accepted: tuple[Accepted, ...] = ()

    def of(self, finding: Finding) -> Accepted | None:
        """The entry that covers the finding; None if there is none, or if the finding is worse than it."""
        entry = self.entry(finding)
        return None if entry is None or is_worse(finding, entry) else entry

    def entry(self, finding: Finding) -> Accepted | None:
        """The entry of the same finding, however far it went."""
        return next((entry for entry in self.accepted if entry.key == finding.key), None)


@dataclass(frozen=True)
class Compared:
    """Findings against a baseline; `stale` are entries whose step was seen without their finding."""

    new: tuple[Finding, ...]
    accepted: tuple[Finding, ...]
    stale: tuple[Accepted, ...]


def read_baseline(folder: Path) -> Baseline:
    """The use case's baseline, an empty one without the file. Raises UseCaseError for a file that is none."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Baseline()
    except (OSError, UnicodeDecodeError) as error:
        raise UseCaseError(folder.name, [Problem(FILE, f"cannot be read: {error}", _FIX)]) from None
    try:
        baseline = Baseline.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        mistake = yaml_mistake(error, text)
        problem = f"is no YAML: {mistake.problem}"
        raise UseCaseError(folder.name, [Problem(mistake.where(FILE), problem, f"{mistake.fix}; or {_FIX}")]) from None
    except ValidationError as error:
        problems = [
            Problem(f"{FILE}: {'.'.join(map(str, error_item['loc']))}", error_item["msg"], _FIX)
            for error_item in error.errors()
        ]
        raise UseCaseError(folder.name, problems) from None
    baseline = Baseline(accepted=tuple(map(_of_today, baseline.accepted)))
    keys = [entry.key for entry in baseline.accepted]
    twice = {entry.name for entry in baseline.accepted if keys.count(entry.key) > 1}
    unreasoned = {entry.name for entry in baseline.accepted if not entry.reason.strip()}
    problems = [Problem(FILE, "an entry stands twice", "keep one of them", name) for name in sorted(twice)]
    problems += [Problem(FILE, "an entry has no reason", "say why it is accepted", name) for name in sorted(unreasoned)]
    if problems:
        raise UseCaseError(folder.name, problems)
    return baseline


def _of_today(entry: Accepted) -> Accepted:
    """An entry of a check that has another name today. Its figure was another one, and bounds nothing any more."""
    if entry.check not in RENAMED:
        return entry
    today = {"check": RENAMED[entry.check], "code": NO_MORE_THAN_LINEAR, "observed": None, "threshold": None}
    return entry.model_copy(update=today)


def readable_baseline(folder: Path) -> Baseline:
    """The same where a step ends and alerts are made: an empty one of a file that is none, which the next step refuses.

    A file that is edited while a stage trains must not cost the training.
    """
    try:
        return read_baseline(folder)
    except UseCaseError:
        return Baseline()


def baseline_text(baseline: Baseline, use_case: str) -> str:
    """The file, sorted, so that a change of it is a change of what is accepted."""
    entries = [
        entry.model_dump(exclude_defaults=True, exclude_none=True)
        for entry in sorted(baseline.accepted, key=lambda entry: entry.key)
    ]
    head = f"# Accepted warnings of {use_case}, written by: trainworthy baseline {use_case} --reason …\n"
    return head + yaml.safe_dump({"accepted": entries}, sort_keys=False, allow_unicode=True, width=110)


def findings_of(step: str, checks: Iterable[CheckResult]) -> tuple[Finding, ...]:
    """The warnings among a step's checks, each once, with the value that lies furthest from its threshold."""
    by_key: dict[tuple[str, ...], Finding] = {}
    for check in checks:
        for finding in _findings(step, check):
            known = by_key.get(finding.key)
            if known is None or _distance(finding) > _distance(known):
                by_key[finding.key] = finding
    return tuple(by_key.values())


def compared(baseline: Baseline, checks: Mapping[str, Sequence[CheckResult]]) -> Compared:
    """The findings of these steps' checks beside the baseline."""
    findings = [finding for step, ones in checks.items() for finding in findings_of(step, ones)]
    covered = [finding for finding in findings if baseline.of(finding) is not None]
    keys = {finding.key for finding in findings}
    stale = tuple(entry for entry in baseline.accepted if entry.step in checks and entry.key not in keys)
    return Compared(tuple(finding for finding in findings if finding not in covered), tuple(covered), stale)


def is_worse(finding: Finding, accepted: Finding) -> bool:
    """True if the check broke where it failed before, or the value lies further beyond its threshold."""
    if finding.status == "error" and accepted.status != "error":
        return True
    if accepted.observed is None or accepted.threshold is None:
        return False
    if not math.isfinite(_distance(finding)):
        return math.isfinite(_distance(accepted))
    return _distance(finding) > FURTHER * _distance(accepted)


def with_accepted(step: str, checks: Sequence[CheckResult], baseline: Baseline) -> tuple[CheckResult, ...]:
    """The checks as people are shown them: an accepted warning is an info that says since when and why."""
    return tuple(_with_accepted(step, check, baseline) for check in checks) if baseline.accepted else tuple(checks)


def _with_accepted(step: str, check: CheckResult, baseline: Baseline) -> CheckResult:
    findings = _findings(step, check)
    entries = [entry for finding in findings if (entry := baseline.of(finding)) is not None]
    worse = [finding.name for finding in findings if baseline.entry(finding) and not baseline.of(finding)]
    if not entries and not worse:
        return check
    details = tuple(_part_with_accepted(step, check, part, baseline) for part in check.details)
    words = [_accepted_words(entries)] if entries else []
    words += [f"worse than accepted: {', '.join(worse)}"] if worse else []
    whole = len(entries) == len(findings) and check.severity == "warning"
    update = {"details": details, "evidence": "; ".join([*words, check.evidence])}
    return check.model_copy(update=update | ({"severity": "info"} if whole else {}))


def _part_with_accepted(step: str, check: CheckResult, part: dict[str, Any], baseline: Baseline) -> dict[str, Any]:
    finding = _finding_of_part(step, check, part)
    entry = baseline.of(finding) if finding is not None else None
    if entry is None:
        return part
    words = f"{_accepted_words([entry])}; {part.get('evidence', '')}".removesuffix("; ")
    return {**part, "severity": "info", "evidence": words}


def _accepted_words(entries: Sequence[Accepted]) -> str:
    reasons = dict.fromkeys(f"{entry.accepted_on}, {entry.reason}" for entry in entries)
    return f"accepted ({'; '.join(reasons)})"


def _findings(step: str, check: CheckResult) -> list[Finding]:
    parts = [finding for part in check.details if (finding := _finding_of_part(step, check, part)) is not None]
    if parts or check.severity != "warning" or check.status not in ("fail", "error"):
        return parts
    value = (_number(check.observed), _number(check.threshold))
    return [Finding(step=step, check=check.name, code=check.code, status=check.status,
                    observed=value[0], threshold=value[1])]  # fmt: skip


def _finding_of_part(step: str, check: CheckResult, part: Mapping[str, Any]) -> Finding | None:
    """What a part of a check's details found: a trial, a rule, a leak, a column, an alarm; None if it is no warning."""
    severity = part.get("severity", "warning" if part.get("status") == "warning" else check.severity)
    # An alarm has no status: it is there because something was found.
    status = part.get("status", "fail" if "monitor" in part else "")
    if severity != "warning" or status not in _BROKEN or (check.stops and not trials_of([check])):
        return None
    named = [_named(part[key]) for key in _NAMING if part.get(key)] or [_named(part.get("about", ()))]
    return Finding(
        step=step, check=str(part.get("check", check.name)), code=str(part.get("code", check.code)),
        subject=" ".join(word for word in named if word), status="fail" if status == "warning" else status,
        observed=_number(part.get("observed")), threshold=_number(part.get("threshold")),
    )  # fmt: skip


def _named(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _distance(finding: Finding) -> float:
    """How far the value lies from its threshold; 0 where one of them is no number."""
    if finding.observed is None or finding.threshold is None:
        return 0.0
    return abs(finding.observed - finding.threshold)


def accepting(baseline: Baseline, comparison: Compared, reason: str, today: date, author: str) -> Baseline:
    """The baseline with what is new, in the place of entries that it is worse than, and without what is stale."""
    replaced = {finding.key for finding in comparison.new} | {entry.key for entry in comparison.stale}
    remaining: Iterator[Accepted] = (entry for entry in baseline.accepted if entry.key not in replaced)
    added = (
        Accepted(**finding.model_dump(), reason=reason, accepted_on=today, accepted_by=author)
        for finding in comparison.new
    )
    return Baseline(accepted=(*remaining, *added))
