"""From what monitors found to what is the matter: causes in words, the likeliest first, each with its fix.

A pure function of findings and of what is known beside them. A rule is told by the findings that it explains; rules
stand in the order in which one explains the other, so that a cause comes before its consequences: what is dead gives
constant answers, and a training of constant answers has a plateau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle.training.monitors.monitor import Finding
from lifecycle.training.monitors.rules import RULES
from lifecycle.training.monitors.rules_later import LATER
from lifecycle.training.monitors.told import Context, Told

__all__ = ["Cause", "Context", "diagnose", "likely"]


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
    for rule in (*RULES, *LATER):
        holds = rule.explains[0] in left if rule.holds is None else rule.holds(Told(left, context))
        if holds and any(name in left for name in rule.explains):
            explained = tuple(name for name in rule.explains if name in left)
            causes.append(Cause(rule.name, rule.cause, rule.fix, explained))
            left = {name: one for name, one in left.items() if name not in explained}
    return tuple(causes)


def likely(finding: Finding, before: Sequence[Finding], context: Context) -> Cause | None:
    """The cause of one finding, in the light of those before it; None of a monitor that no rule knows."""
    causes = diagnose([*before, finding], context)
    return next((one for one in causes if finding.monitor in one.explains), None)
