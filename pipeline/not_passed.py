"""The checks of a run that did not pass, as a terminal shows them: what was seen, and where to read more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainworthy.lifecycle.protocol.checks import CheckResult
    from trainworthy.lifecycle.protocol.records import Step
    from trainworthy.lifecycle.report.outcome import Records

# What a terminal shows at a glance; the report has all.
_MOST = 8
_SENTENCE = re.compile(r"(?<=[.!?])\s")


def not_passed_text(records: Records) -> str:
    """Lines on the checks that failed or were inconclusive, the worst first; empty if there are none."""
    from trainworthy.lifecycle.report.first_page import checks_not_passed

    found = checks_not_passed(records)
    if not found:
        return ""
    shown = [line for step, check in found[:_MOST] for line in _lines(step, check)]
    left = [f"  and {len(found) - _MOST} more, in the report"] if len(found) > _MOST else []
    return "\n".join(["checks that did not pass, the worst first", *shown, *left, ""])


def _lines(step: Step, check: CheckResult) -> tuple[str, str]:
    from trainworthy.lifecycle.report.sections import check_note, status_words

    note = check_note(check)
    how = f"{status_words(check.status).lower()}{f', {note}' if note else ''}"
    seen = _SENTENCE.split(check.evidence.strip(), maxsplit=1)[0]
    return f"  - {step}/{check.name}, {how}: {seen}", f"    more: trainworthy explain {check.name}"
