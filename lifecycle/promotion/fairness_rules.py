"""How each rate of decisions stands to the limit of its difference between values of a protected column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import comb

from trainworthy.lifecycle.promotion.evidence import usable
from trainworthy.lifecycle.promotion.finding import Finding, interval_in_words, lacking
from trainworthy.lifecycle.protocol.records import Disparity, Estimate
from trainworthy.lifecycle.wording import metric_name


def fairness_findings(disparities: Iterable[Disparity], limits: Mapping[str, float]) -> Iterator[Finding]:
    """What the rates with a limit allow: all columns and claims have to keep it, each at its own 95 %."""
    for one in disparities:
        limit = limits.get(one.rate)
        if limit is None:
            continue
        named = f"{metric_name(one.rate)} by {one.column} ({one.claim})"
        difference = one.difference
        if difference is None or not usable(difference):
            yield Finding("shadow", f"The difference of {named} was not measured: {one.reason or 'no finite figure'}.")
            continue
        told = (
            f"{named} differs by {interval_in_words(difference)} from {one.lowest} to {one.highest}, at most {limit:g}"
        )
        told += _left_out(one)
        if _surely_above(one, difference, limit):
            yield Finding("reject", f"Limit of fairness broken: {told}.")
        elif difference.high > limit:
            yield Finding(
                "shadow", f"Limit of fairness not safely kept: {told}.", lacking(difference, limit - difference.value)
            )
        else:
            yield Finding("promote", f"Limit of fairness kept: {told}.")


def _surely_above(disparity: Disparity, difference: Estimate, limit: float) -> bool:
    """Whether the difference exceeds the limit, reckoning with the choice of the two extremes among all pairs."""
    from scipy.special import stdtrit

    pairs = comb(sum(one.rate is not None for one in disparity.values), 2)
    reach = float(stdtrit(difference.groups - 1, 1 - 0.025 / max(1, pairs))) * difference.standard_error
    return difference.value - reach > limit


def _left_out(disparity: Disparity) -> str:
    """How many values are in no difference, since they have too few rows or groups."""
    small = sum(one.rate is None for one in disparity.values) + disparity.other_values
    return f"; {small} value{'s' if small > 1 else ''} of too few rows left out" if small else ""
