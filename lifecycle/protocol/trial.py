"""The record of a preflight check that was tried."""

from __future__ import annotations

from trainworthy.lifecycle.protocol.checks import Severity, Status
from trainworthy.lifecycle.spec.frozen import Frozen


class Trial(Frozen):
    """A check that was tried, or why it was not; all its words, so that a reader needs no catalogue.

    `device` is where it looked: host for what no device changes. `seconds` is wall time. `optimizer_steps` counts calls
    of `step` that returned: each of several optimizers, no step within a step, and what a check fits by itself as well.
    `code` names what was found, the check's id where nothing more has to be told apart; trials of before there were
    codes have none. `about` says what was looked at, where that may be another thing in the next run. `own_cause`: the
    check saw the cause, which is not the one that the catalogue guesses. `follows` are the checks that failed as well,
    and whose fault makes this one fail.
    """

    check: str
    status: Status
    severity: Severity = "error"
    required: bool = False
    device: str = "host"
    observed: float | int | str | bool | None = None
    threshold: float | int | str | bool | None = None
    evidence: str
    symptom: str = ""
    cause: str = ""
    fix: str = ""
    seconds: float = 0.0
    optimizer_steps: int = 0
    curve: tuple[tuple[float, float], ...] = ()
    answered_by: str = ""
    code: str = ""
    about: tuple[str, ...] = ()
    own_cause: bool = False
    follows: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return self.check.partition(".")[0]
