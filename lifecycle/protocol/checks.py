"""The one form of every gate: a tuple of CheckResult, and the comparisons that make them.

A step stops on a `fail` or `error` of severity error, and on `insufficient` where the check is
required. Everything else travels on with the record; an insufficient check caps the verdict at shadow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

Status = Literal["pass", "fail", "insufficient", "error", "not_applicable"]
Severity = Literal["error", "warning", "info"]
# Of fewer rows an aggregate says little, and may give one of them away: no value of theirs is named.
FEWEST_ROWS = 20
# Names that checks had, with those that ask the same today: what was stored, or accepted, keeps its own.
RENAMED = {"learned": "references", "beyond_linear": "references"}


class CheckResult(BaseModel):
    """What one check found.

    `observed` and `threshold` are plain values with their unit in the check's name or evidence;
    `evidence` says in words what was seen, `fix` what to do if it did not pass. `code` names what was
    found where somebody has to tell it apart; else the check's name is enough.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    status: Status
    severity: Severity = "error"
    required: bool = False
    device: str = "host"
    observed: float | int | str | bool | None = None
    threshold: float | int | str | bool | None = None
    evidence: str = ""
    fix: str = ""
    details: tuple[dict[str, Any], ...] = ()
    code: str = ""

    @property
    def stops(self) -> bool:
        """True if the step must not go on."""
        return stops_the_step(self.status, self.severity, self.required)


def stops_the_step(status: Status, severity: Severity, required: bool) -> bool:
    """True if a step with such a check must not go on."""
    return severity == "error" if status in ("fail", "error") else status == "insufficient" and required


def stopping(checks: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """The checks that stop the step, in order."""
    return tuple(check for check in checks if check.stops)


class Looked(Protocol):
    """What was looked at and how it ended: a check, a trial of preflight, or a row that tells of one."""

    @property
    def status(self) -> Status: ...

    @property
    def severity(self) -> Severity: ...


LookedT = TypeVar("LookedT", bound=Looked)


def by_badness(looked: Iterable[LookedT]) -> list[LookedT]:
    """Failed before inconclusive, then what was accepted, then the rest; the severer first, else in order.

    What may follow from another failure comes after what does not.
    """
    return sorted(looked, key=badness)


def is_open(looked: Looked) -> bool:
    """True for what failed, broke, or was inconclusive."""
    return looked.status in _OPEN


_OPEN = ("fail", "error", "insufficient")


def badness(looked: Looked) -> tuple[int, int, int, int]:
    """What by_badness sorts by; the least is the worst."""
    if not is_open(looked):
        return (2, 0, 0, 0)
    # What somebody accepted is severity info, and must not push what is new away.
    accepted = looked.severity == "info"
    # Trials of preflight alone say what they follow from.
    follows = bool(getattr(looked, "follows", ()))
    return (accepted, looked.status == "insufficient", ("error", "warning", "info").index(looked.severity), follows)


def at_most(name: str, observed: float, threshold: float, **rest: Any) -> CheckResult:
    """Pass if observed <= threshold; a value that is not finite is an error, never a pass."""
    return _compared(name, observed, threshold, observed <= threshold, rest)


def at_least(name: str, observed: float, threshold: float, **rest: Any) -> CheckResult:
    """Pass if observed >= threshold; a value that is not finite is an error, never a pass."""
    return _compared(name, observed, threshold, observed >= threshold, rest)


def holds(name: str, condition: bool, **rest: Any) -> CheckResult:
    """Pass if the condition holds."""
    return CheckResult(name=name, status="pass" if condition else "fail", **rest)


def _compared(name: str, observed: float, threshold: float, good: bool, rest: dict[str, Any]) -> CheckResult:
    if not (math.isfinite(observed) and math.isfinite(threshold)):
        # JSON has no NaN, so the value travels as text.
        return CheckResult(name=name, status="error", observed=str(observed), threshold=str(threshold), **rest)
    return CheckResult(
        name=name, status="pass" if good else "fail", observed=float(observed), threshold=float(threshold), **rest
    )
