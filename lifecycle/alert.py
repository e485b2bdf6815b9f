"""What is told when data fails or warns: made from any CheckResult, told once, and taken back once when it recovers.

An Alert holds words and counts, never a row: a check's `details` stay in the state folder and in Dagster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic

MOST_EVIDENCE = 800
# What a finding is called; a check that is not named here is called by its own name.
_WHAT = {"completed": "data not judged", "freshness": "late data", "content_hash": "changed data"}
_KINDS = {"row_count": "volume", "type": "schema change"}
_BROKEN = ("fail", "error")


class Alert(Frozen):
    """One finding about a dataset version, for people. `step` and `check` say where it was found."""

    use_case: str
    dataset: str
    step: str
    check: str
    what: str
    severity: Literal["error", "warning", "recovered"]
    evidence: str
    fix: str
    run_id: str

    @property
    def text(self) -> str:
        """On one line."""
        head = f"{self.what}: {self.dataset} of {self.use_case} ({self.severity})"
        return f"{head}: {self.evidence}" + (f"; fix: {self.fix}" if self.fix else "")


class Told(Frozen):
    """A finding that people know of. `finding` changes with what was found, not with its figures."""

    dataset: str
    step: str
    check: str
    finding: str
    what: str
    run_id: str


class Judged(Frozen):
    """What was judged: a step of a run on a dataset version, such as flights@v12."""

    use_case: str
    dataset: str
    step: str
    run_id: str


def severity_of(check: CheckResult) -> Literal["error", "warning"] | None:
    """Whether the check is worth an alert: it stops, or it or one of its parts fails as a warning."""
    if check.stops:
        return "error"
    if check.status in _BROKEN and check.severity == "warning":
        return "warning"
    noted = any(part.get("status") in _BROKEN and part.get("severity") == "warning" for part in check.details)
    return "warning" if noted else None


def alert_of(judged: Judged, check: CheckResult, severity: Literal["error", "warning", "recovered"]) -> Alert:
    """The check's finding in words."""
    return Alert(
        **judged.model_dump(), check=check.name, what=what(check), severity=severity,
        evidence=_in_line(check.evidence), fix="" if severity == "recovered" else _in_line(check.fix),
    )  # fmt: skip


def what(check: CheckResult) -> str:
    """What is wrong, in a few words: of a contract by the kinds of its broken rules, else by the check's name."""
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


def unsent(judged: Judged, checks: Iterable[CheckResult], known: Sequence[Told]) -> Iterator[tuple[Alert, Told]]:
    """Each finding that was not told yet for this version, with what to remember once it is."""
    for check in checks:
        severity = severity_of(check)
        if severity is None:
            continue
        entry = Told(
            dataset=judged.dataset, step=judged.step, check=check.name, finding=finding_of(check), what=what(check),
            run_id=judged.run_id,
        )  # fmt: skip
        if not any(_same(entry, other) for other in known):
            yield alert_of(judged, check, severity), entry


def recovered(
    judged: Judged, checks: Iterable[CheckResult], known: Sequence[Told], published: Sequence[str]
) -> Iterator[tuple[Alert, tuple[Told, ...]]]:
    """Each check that holds again, with the findings that it closes: those of this version and of earlier ones.

    Args:
        published: every published version in the order of publication; a finding about another one is closed too.
    """
    later = set(published[published.index(judged.dataset) + 1 :]) if judged.dataset in published else set()
    for check in checks:
        if check.status not in ("pass", "not_applicable") or severity_of(check) is not None:
            continue
        place = (judged.step, check.name)
        closed = tuple(told for told in known if (told.step, told.check) == place and told.dataset not in later)
        if closed:
            alert = alert_of(judged, check, "recovered")
            yield alert.model_copy(update={"what": closed[-1].what}), closed


def after_telling(known: Sequence[Told], entry: Told) -> tuple[Told, ...]:
    """The findings with this one; another finding of the same check and version is replaced."""
    place = (entry.dataset, entry.step, entry.check)
    return (*(told for told in known if (told.dataset, told.step, told.check) != place), entry)


def read_told(path: Path) -> tuple[Told, ...]:
    """The findings that people know of; none from a file that is missing or broken: then they are told again."""
    try:
        return TypeAdapter(tuple[Told, ...]).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return ()


def write_told(path: Path, known: Sequence[Told]) -> None:
    """Replace the file at once."""
    write_atomic(path, json.dumps([told.model_dump() for told in known], indent=1).encode())


def _same(one: Told, other: Told) -> bool:
    return one.model_dump(exclude={"run_id"}) == other.model_dump(exclude={"run_id"})


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
