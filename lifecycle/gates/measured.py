"""A cause that a measurement supports is told before those that only could be.

What may be the consequence of another failure names that one, and is told after it: rows that mix change a row's answer
in another order, too.

Each entry of catalogue.toml and stages.toml says in `measured_by` which findings of checks measure one of the causes it
names, by their code. Where one of those was found, its cause comes first, with its fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.check import CheckWords
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS, StageWords
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.protocol.trial import Trial

_CHECKS: Mapping[str, CheckWords] = {check.id: check for check in CATALOGUE}
_STAGE: Mapping[str, StageWords] = {check.name: check for check in STAGE_CHECKS}


def with_measured_causes(trials: Sequence[Trial], leaks: Iterable[Leak] = ()) -> tuple[Trial, ...]:
    """The trials; those that only guess at their cause name first what others of them, or leaks, measured of it, and
    those that follow from others name these.
    """
    measured = (*trials, *(_of_leak(leak) for leak in leaks if leak.status == "fail"))
    told = [_with_cause(trial, measured) for trial in trials]
    return tuple(
        _with_premises(now, trials, seen=trial.own_cause or now != trial)
        for trial, now in zip(trials, told, strict=True)
    )  # fmt: skip


def _with_premises(trial: Trial, trials: Sequence[Trial], *, seen: bool) -> Trial:
    """With what it may follow from: after its cause where that was `seen`, else before a cause that is a guess."""
    check = _CHECKS.get(trial.check)
    if check is None or trial.status not in ("fail", "error", "insufficient"):
        return trial
    failed = {other.check for other in trials if other.status == "fail" and other.severity == "error"}
    follows = tuple(name for name in check.follows if name in failed)
    if not follows:
        return trial
    names = " and ".join(follows)
    told = {
        "cause": f"it may follow from {names}; else: {trial.cause}", "fix": f"see {names} first; else: {trial.fix}",
    }  # fmt: skip
    if seen:
        told = {"cause": f"{trial.cause}; it may follow from {names} as well"}
    return trial.model_copy(update={"follows": follows, **told})


def _of_leak(leak: Leak) -> Trial:
    """A leak as a finding that saw its own cause, with the code `leakage.FAMILY`."""
    return Trial(
        check="leakage_in_training", status="fail", code=f"leakage.{leak.family}", evidence=leak.evidence,
        cause=leak.evidence, fix=leak.fix, own_cause=True,
    )  # fmt: skip


def with_measured_fixes(checks: Iterable[CheckResult], trials: Sequence[Trial]) -> tuple[CheckResult, ...]:
    """A stage's checks; those that did not pass advise first what preflight's `trials` measured of their cause."""
    return tuple(_with_fix(check, trials) for check in checks)


def _with_cause(trial: Trial, trials: Sequence[Trial]) -> Trial:
    check = _CHECKS.get(trial.check)
    if check is None or trial.own_cause or trial.status not in ("fail", "insufficient"):
        return trial
    found = _measured(check.measured_by, trials)
    if trial.status == "fail" and trial.severity == "error":
        # What warns is found of trainings that go well, too.
        found = [other for other in found if other.severity == "error"]
    causes = [f"{other.cause} (measured by {other.check})" for other in found]
    return trial.model_copy(
        update={
            "cause": "; else: ".join([*causes, trial.cause]),
            "fix": "; else: ".join([*(other.fix for other in found), trial.fix]),
        }
    )


def _with_fix(check: CheckResult, trials: Sequence[Trial]) -> CheckResult:
    words = _STAGE.get(check.name)
    if words is None or check.status not in ("fail", "insufficient"):
        return check
    # Warnings among them: what is worse has stopped the run before the stage.
    found = _measured(words.measured_by.get(check.code, ()), trials)
    measured = [f"{other.cause}, as preflight's {other.check} measured: {other.fix}" for other in found]
    return check.model_copy(update={"fix": "; else: ".join([*measured, check.fix])})


def _measured(codes: Sequence[str], trials: Sequence[Trial]) -> list[Trial]:
    """The failed trials with these codes that saw their own cause, in the order of the codes."""
    failed = [trial for trial in trials if trial.status == "fail" and trial.own_cause]
    return [trial for code in codes for trial in failed if trial.code == code]
