"""findings.toml: families of leakage, and a verdict's rules with how they stand, in words."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.protocol.leak import Taxon


@dataclass(frozen=True)
class LeakWords:
    """A family of leakage checks, by the id that details and records give it, and the taxon that it looks for.

    `fix` is what a leak of the family says to do, unless what was found asks for other words.
    """

    id: str
    taxon: Taxon
    question: str
    fix: str


@dataclass(frozen=True)
class RuleWords:
    """A rule of a verdict with the states that it can be in, and `names` where it is judged of several things."""

    id: str
    question: str
    states: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[tuple[str, str], ...]:
        """Each code that a verdict may give of it, with the state: guardrail.broken, control.cost.fail."""
        ids = [f"{self.id}.{name}" for name in self.names] or [self.id]
        return tuple((f"{name}.{state}", state) for name in ids for state in self.states)


@dataclass(frozen=True)
class StateWords:
    """How a rule stands; of a code it is what stands behind the last dot."""

    id: str
    means: str


_ENTRIES = tomllib.loads(Path(__file__).with_name("findings.toml").read_text(encoding="utf-8"))
LEAKS: tuple[LeakWords, ...] = tuple(LeakWords(**entry) for entry in _ENTRIES["leak"])
RULES: tuple[RuleWords, ...] = tuple(
    RuleWords(entry["id"], entry["question"], tuple(entry["states"]), tuple(entry.get("names", ())))
    for entry in _ENTRIES["rule"]
)
STATES: tuple[StateWords, ...] = tuple(StateWords(**entry) for entry in _ENTRIES["state"])


def fix_of(family: str) -> str:
    """What to do about a leak of the family."""
    return next(leak.fix for leak in LEAKS if leak.id == family)


def verdict_codes() -> dict[str, tuple[RuleWords, StateWords]]:
    """Every code that a verdict may give, with its rule and how that stands."""
    states = {state.id: state for state in STATES}
    return {code: (rule, states[state]) for rule in RULES for code, state in rule.codes}
