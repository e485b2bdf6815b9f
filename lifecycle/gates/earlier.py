"""What the checks of earlier steps leave open: a required answer that is insufficient caps the verdict at shadow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainworthy.lifecycle.gates.references_check import LEARNED
from trainworthy.lifecycle.gates.references_check import NAME as REFERENCES
from trainworthy.lifecycle.protocol.checks import RENAMED, CheckResult
from trainworthy.lifecycle.protocol.records import STAGES, STEPS, Step

# Asked of the model as it stands after the stage. The other checks of a stage are about its own updates: where the next
# stage goes on from these, they are in the model that ships, and nothing later can vouch for them.
ABOUT_THE_MODEL = frozenset({"learned", "references", "inputs_reviewed", "seeds"})


def open_checks(checks: Mapping[Step, Sequence[CheckResult]], *, continued: bool) -> tuple[str, ...]:
    """The checks that cap the verdict, as step/name, in the order of the steps.

    A stage's insufficient check is answered by a later stage's pass of the same name: the pilot may have had too few
    rows to tell what full shows. One of preflight by a pass of the stages' checks that its open trials name as asking
    the same. `continued` is True where each stage goes on from the weights of the one before.
    """
    return tuple(
        f"{step}/{check.name}"
        for step in STEPS
        for check in checks.get(step, ())
        if caps(check) and not _answered_later(step, check, checks, continued)
    )


def caps(check: CheckResult) -> bool:
    """True if the check caps a verdict. One whose failure is a warning holds nothing back, nor does its absence."""
    return check.status == "insufficient" and check.severity == "error"


def tell_open(step: Step, checks: Sequence[CheckResult], *, continued: bool) -> tuple[str, ...]:
    """A line for each check that is insufficient or a failed warning and lets the run go on, for the terminal.

    `continued` is as for open_checks.
    """
    return tuple(
        _check_text(step, check, continued)
        for check in checks
        if not check.stops and check.status in ("fail", "error", "insufficient")
    )


def _check_text(step: Step, check: CheckResult, continued: bool) -> str:
    evidence = check.evidence.rstrip(".") or "no reason was given"
    fix = f"\n  fix: {check.fix}" if check.fix else ""
    if not caps(check):
        return f"{check.name}: {check.status}: {evidence}; a warning, which does not limit the verdict{fix}"
    answers = [f"check {name}" for name in _answering(check)] if step == "preflight" else []
    if step in STAGES[:-1] and _may_be_answered(check, continued):
        answers = ["same check"]
    unless = f", unless a later stage passes the {' and '.join(answers)}" if answers else ""
    return f"{check.name}: {check.status}: {evidence}; the verdict can be shadow at best{unless}{fix}"


def _may_be_answered(check: CheckResult, continued: bool) -> bool:
    """True if a later stage's pass speaks of what this check asks."""
    return not continued or check.name in ABOUT_THE_MODEL


def _answering(check: CheckResult) -> tuple[str, ...]:
    """The stages' checks that together answer a check of preflight; none if one of its open trials names none."""
    serious = (row for row in check.details if row.get("severity") == "error")
    names = [_today(row.get("answered_by", "")) for row in serious if row.get("status") == "insufficient"]
    return tuple(dict.fromkeys(names)) if all(names) else ()


def _answered_later(
    step: Step, check: CheckResult, checks: Mapping[Step, Sequence[CheckResult]], continued: bool
) -> bool:
    if step == "preflight":
        required, later = _answering(check), STAGES
    elif step in STAGES and _may_be_answered(check, continued):
        required, later = (_today(check.name),), STAGES[STAGES.index(step) + 1 :]
    else:
        return False
    passed = {_today(other.name) for stage in later for other in checks.get(stage, ()) if _answers(other)}
    return bool(required) and passed.issuperset(required)


def _answers(check: CheckResult) -> bool:
    """A pass, or a network that has learned something and could have learned more: that is a question of its own."""
    return check.status == "pass" or (check.name == REFERENCES and check.code in LEARNED)


def _today(name: str) -> str:
    """The name by which a check is asked today; `beyond_linear` asked something else than what is open."""
    return RENAMED[name] if name == "learned" else name
