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
    """A rule of a verdict; of `codes` it is what stands before the first dot."""

    id: str
    question: str


@dataclass(frozen=True)
class StateWords:
    """How a rule stands; of `codes` it is what stands behind the last dot."""

    id: str
    means: str


_ENTRIES = tomllib.loads(Path(__file__).with_name("findings.toml").read_text(encoding="utf-8"))
LEAKS: tuple[LeakWords, ...] = tuple(LeakWords(**entry) for entry in _ENTRIES["leak"])
RULES: tuple[RuleWords, ...] = tuple(RuleWords(**entry) for entry in _ENTRIES["rule"])
STATES: tuple[StateWords, ...] = tuple(StateWords(**entry) for entry in _ENTRIES["state"])


def fix_of(family: str) -> str:
    """What to do about a leak of the family."""
    return next(leak.fix for leak in LEAKS if leak.id == family)


def of_code(code: str) -> tuple[RuleWords, StateWords] | None:
    """The rule of a verdict's code and how it stands, as `guardrail.broken`; None of any other text."""
    first, last = code.partition(".")[0], code.rpartition(".")[2]
    rule = next((rule for rule in RULES if rule.id == first), None)
    state = next((state for state in STATES if state.id == last), None)
    return (rule, state) if rule and state and "." in code else None
