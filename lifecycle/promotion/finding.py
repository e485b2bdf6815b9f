"""A rule's finding, and how its figures are told."""

from __future__ import annotations

from datetime import date
from typing import Literal, NamedTuple

from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.records import ALONE
from trainworthy.lifecycle.spec.benchmark import Guardrail, OnUnderpowered, SliceSpec
from trainworthy.lifecycle.tasks.interval import groups_to_show
from trainworthy.lifecycle.wording import about, count, decimals_of, metric_name

Ruling = Literal["promote", "shadow", "reject"]
UNDERPOWERED: dict[OnUnderpowered, Ruling] = {"block": "reject", "shadow": "shadow", "warn": "promote"}
NO_SPREAD = "an interval of width 0 shows that the groups are alike, as those without an event are, and no certainty"


def declared_in_words(declared: OnUnderpowered) -> str:
    """What is declared for too few rows, where it is not the default."""
    consequence = {"warn": "it only warns", "block": "it rejects"}.get(declared)
    return f"; {consequence} (on_underpowered: {declared})" if consequence else ""


class Window(NamedTuple):
    """First and last day of a benchmark whose groups follow each other in time."""

    first: date
    last: date


class Lacking(NamedTuple):
    """What would show that a bound is kept: about `needed` groups in the place of `groups`, or no number of them."""

    needed: int | None
    groups: int

    def in_words(self, window: Window | None) -> str:
        if self.needed is None:
            return "as measured, a better model is needed, not more benchmark rows"
        text = f"if the value holds, {about(self.needed)} groups would show that it suffices"
        if window is None:
            return text
        last = window.first + (window.last - window.first) * (self.needed / self.groups)
        days = (last - window.first).days + 1
        return f"{text}; at its pace a benchmark window of {count(days)} days holds them, from {window.first} to {last}"


class Finding(NamedTuple):
    """The best decision that one rule allows, why, and what it lacks to allow more, where that is known.

    `code` names the rule and how it stands, e.g. `guardrail.broken`: what is counted or looked for goes by it.
    """

    allows: Ruling
    code: str
    reason: str
    lacks: Lacking | None = None

    def in_words(self, window: Window | None, decision: Ruling) -> str:
        """The reason with what it lacks, and where it does not make the decision that it held back, what it would.

        `window` tells by when more groups are there.
        """
        lacks = [] if self.lacks is None else [self.lacks.in_words(window)]
        alone = [ALONE] if (decision, self.allows) == ("reject", "shadow") else []
        return "; ".join((self.reason.removesuffix("."), *lacks, *alone)) + "."


def room(bound_of: Guardrail | SliceSpec, estimate: Estimate) -> tuple[str, float, float]:
    """The rule in words; the room that the unfavourable and the favourable end leave, below 0 is broken."""
    if bound_of.at_least is not None:
        bound = bound_of.at_least
        return f"at least {bound:g}", estimate.low - bound, estimate.high - bound
    assert bound_of.at_most is not None
    bound = bound_of.at_most
    return f"at most {bound:g}", bound - estimate.high, bound - estimate.low


def gain_in_words(gain: Estimate, metric: str) -> str:
    return f"{metric_name(metric)} gain {interval_in_words(gain, sign='+')}, {gain.groups} groups"


def interval_in_words(estimate: Estimate, sign: Literal["", "+"] = "") -> str:
    form = f"{sign},.{decimals_of(estimate.value, estimate.standard_error)}f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]{estimate.method_told}"


def lacking_of(bound_of: Guardrail | SliceSpec, estimate: Estimate) -> Lacking:
    """As lacking, of a bound: an interval need not lie evenly about its value."""
    at_value = estimate.model_copy(update={"low": estimate.value, "high": estimate.value})
    return lacking(estimate, room(bound_of, at_value)[1])


def lacking(estimate: Estimate, spare: float) -> Lacking:
    """What would show that a bound is kept; `spare` is the room between the value and it, below 0 is missed."""
    return Lacking(groups_to_show(estimate, spare), estimate.groups)
