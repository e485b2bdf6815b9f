"""From what monitors found to what is the matter: causes in words, the likeliest first, each with its fix.

A pure function of findings and of what is known beside them. A rule is told by the findings that it explains; rules
stand in the order in which one explains the other, so that a cause comes before its consequences: what is dead gives
constant answers, and a training of constant answers has a plateau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.rules import NOT_FINITE, RULES, SPIKES
from trainworthy.lifecycle.engine.training.monitors.told import JUMP, JUST_BEFORE, LATELY, Context, Told
from trainworthy.lifecycle.engine.training.state import Recipe
from trainworthy.lifecycle.protocol.records import Alarm

__all__ = ["Cause", "Context", "Diagnosis", "context_of", "diagnose", "diagnosed", "likely", "of_alarms"]

NO_CONTEXT = Context()
# Of the schedule so far, for its largest rate.
RATES_LOOKED_AT = 200


@dataclass(frozen=True)
class Cause:
    """What is the matter, and what to do. `explains` are the monitors whose findings follow from it."""

    name: str
    cause: str
    fix: str
    explains: tuple[str, ...]


def diagnose(findings: Sequence[Finding], context: Context) -> tuple[Cause, ...]:
    """The causes of all that was found, the likeliest first; () of nothing.

    What an earlier cause explains is no reason for a later one.
    """
    left = {one.monitor: one for one in sorted(findings, key=lambda one: -one.step)}
    causes = []
    for rule in RULES:
        holds = rule.explains[0] in left if rule.holds is None else rule.holds(Told(left, context))
        if holds and any(name in left for name in rule.explains):
            explained = tuple(name for name in rule.explains if name in left)
            causes.append(Cause(rule.name, rule.cause, rule.fix, explained))
            left = {name: one for name, one in left.items() if name not in explained}
    return tuple(causes)


def likely(finding: Finding, before: Sequence[Finding], context: Context) -> Cause | None:
    """The cause of one finding, in the light of those before it; None of a monitor that no rule knows.

    What passes by, as a spike does, bears on what follows at once; what lasts, as a dead layer, bears on all.
    """
    since = finding.onset - JUST_BEFORE
    bearing = [one for one in before if one.monitor not in (*NOT_FINITE, *SPIKES) or one.step >= since]
    causes = diagnose([*bearing, finding], context)
    return next((one for one in causes if finding.monitor in one.explains), None)


class Diagnosis(NamedTuple):
    """The likeliest cause of a finding: the rule that names it, cause and fix in words, and what else it explains."""

    rule: str = ""
    cause: str = ""
    fix: str = ""
    beside: str = ""


def diagnosed(finding: Finding, before: Sequence[Finding] = (), context: Context = NO_CONTEXT) -> Diagnosis:
    """The likeliest cause of a finding; all "" where no rule names one."""
    cause = likely(finding, before, context)
    if cause is None:
        return Diagnosis()
    newest = {one.monitor: one.step for one in before if one.monitor != finding.monitor}
    beside = [f"{name} at update {newest[name]}" for name in cause.explains if name in newest]
    return Diagnosis(cause.name, cause.cause, cause.fix, ", ".join(beside))


def context_of(
    recipe: Recipe | None, step: int, rates: Sequence[float], update_ratio: float | None, bad_inputs: bool | None,
    game: bool = False,
) -> Context:  # fmt: skip
    """What is known beside findings at an update; `rates` are the newest updates', this one's last."""
    learning_rate = rates[-1] if rates else 0.0
    if recipe is None:
        # A script's schedule is known by what it told.
        newest, before = rates[-LATELY - 1 :], rates[: -LATELY - 1]
        jumped = _jumped(max(before, default=0.0), newest)
        return Context(learning_rate, max(rates, default=0.0), "fp32", update_ratio, bad_inputs, jumped, game)
    largest = max(learning_rate, *map(recipe.learning_rate, range(0, step + 1, 1 + step // RATES_LOOKED_AT)))
    first = max(0, step - LATELY)
    newest = [recipe.learning_rate(one) for one in range(first, step + 1)]
    earlier = max(map(recipe.learning_rate, range(0, first + 1, 1 + first // RATES_LOOKED_AT)))
    jumped = _jumped(earlier, newest)
    return Context(learning_rate, largest, recipe.precision, update_ratio, bad_inputs, jumped, game)


def _jumped(earlier: float, newest: Sequence[float]) -> bool:
    """True if one of the newest rates is JUMP times the highest before it."""
    highest = accumulate(newest, max, initial=earlier)
    return any(after > JUMP * before > 0 for before, after in zip(highest, newest, strict=False))


def of_alarms(alarms: Sequence[Alarm]) -> list[Finding]:
    """What was found, of the alarms that tell it: one that was seen again counts where it was seen last, too."""
    found = []
    for alarm in alarms:
        first = Finding(
            alarm.monitor, alarm.severity, alarm.step, alarm.onset, alarm.symptom, alarm.evidence, alarm.where
        )
        again = alarm.last_step > alarm.step
        found += [first, replace(first, step=alarm.last_step, onset=alarm.last_step)] if again else [first]
    return found
