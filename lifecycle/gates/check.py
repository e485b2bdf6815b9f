"""What a preflight check is, what it finds, and how the record of it (protocol/trial.py) is made.

A check has a standard id `family.name`, the words for its failure (symptom, cause, fix), and a function that looks.
The functions look only; trials.py calls them, counts and times them, and contains what they raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from trainworthy.lifecycle.protocol.checks import Severity, Status
from trainworthy.lifecycle.protocol.trial import Trial

SubjectT = TypeVar("SubjectT")
# Codes of trials that looked at nothing, or whose look clears nothing.
UNTRIED, NOT_APPLICABLE, DECLARED, CPU_ONLY = "untried", "not_applicable", "declared", "cpu_only"
# Of a look whose own numbers a loss or network refused.
REFUSED = "refused"
# Of a forecast that was tried, and could not be measured.
UNMEASURED = "unmeasured"


class ProbeError(Exception):
    """A loss or network refused what a check tried in the place of its own numbers; what it says is the cause.

    It may be made for those alone that the network gives: so nothing is said of the use case.
    """


@dataclass(frozen=True)
class Outcome:
    """What a check saw. `cause` and `fix` say more than the check's own words if what was seen tells more.

    `severity` is what this finding weighs, where it weighs less than the check's own. `curve` are points (x, y).
    `code` names this finding among those of the check, where somebody has to tell them apart; `about` says what was
    looked at, where that may be another thing in the next run of equal identity, such as the stores.
    `answered_by` names a stage's check that asks the same of more rows: its pass answers what this could not measure.
    """

    status: Status
    evidence: str
    observed: float | int | str | bool | None = None
    threshold: float | int | str | bool | None = None
    cause: str = ""
    fix: str = ""
    required: bool = False
    severity: Severity | None = None
    curve: tuple[tuple[float, float], ...] = ()
    answered_by: str = ""
    code: str = ""
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckWords:
    """A check as people are told of it: an entry of catalogue.toml, which says what each field means."""

    id: str
    question: str
    symptom: str
    cause: str
    fix: str
    severity: Severity = "error"
    on_device: bool = True
    after: str = ""
    follows: tuple[str, ...] = ()
    measured_by: tuple[str, ...] = ()
    runs: Literal["host", "worker", "script", "after"] = "worker"

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Check(CheckWords, Generic[SubjectT]):
    """A check of the battery. `look` is given the subject (engine/preflight/subject.py), or what the host knows."""

    look: Callable[[SubjectT], Outcome]


def tried(check: Check[Any], outcome: Outcome, device: str, seconds: float = 0.0, optimizer_steps: int = 0) -> Trial:
    """The record of a check and what it found; words of a failure only where there is one."""
    words: dict[str, Any] = {
        "symptom": check.symptom, "cause": outcome.cause or check.cause, "fix": outcome.fix or check.fix,
    }  # fmt: skip
    return Trial(
        check=check.id, status=outcome.status, severity=outcome.severity or check.severity, required=outcome.required,
        device=device if check.on_device else "host", observed=_plain(outcome.observed),
        threshold=_plain(outcome.threshold), evidence=outcome.evidence, seconds=seconds,
        optimizer_steps=optimizer_steps, curve=outcome.curve, answered_by=outcome.answered_by,
        code=outcome.code or check.id, about=outcome.about, own_cause=bool(outcome.cause),
        **({} if outcome.status in ("pass", "not_applicable") else words),
    )  # fmt: skip


def untried(
    check: CheckWords,
    why: str,
    status: Literal["insufficient", "not_applicable"] = "insufficient",
    required: bool = True,
) -> Trial:
    """A check that was not tried. Unmeasured is not passed: insufficient ones stop the step if `required`."""
    return Trial(
        check=check.id, status=status, severity=check.severity, required=required and status == "insufficient",
        evidence=why, code=UNTRIED if status == "insufficient" else NOT_APPLICABLE,
        fix="fix what the other checks found, then run again" if status == "insufficient" else "",
    )  # fmt: skip


def untried_as_declared(check: CheckWords, why: str, not_applicable: Mapping[str, str]) -> Trial:
    """The same, unless it is declared not to apply: that holds whether it was come to or not."""
    reason = not_applicable.get(check.id)
    return untried(check, why) if reason is None else declared_away(check, reason)


def declared_away(check: CheckWords, reason: str) -> Trial:
    """A check that use_case.yaml declares not to apply."""
    return untried(check, f"declared: {reason}", "not_applicable").model_copy(update={"code": DECLARED})


def _plain(value: float | int | str | bool | None) -> float | int | str | bool | None:
    """JSON has no NaN and no infinity, so these travel as text."""
    finite = not isinstance(value, float) or abs(value) < float("inf")
    return value if finite else str(value)
