"""How each rate of decisions stands to the limit of its difference between values of a protected column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainworthy.lifecycle.evaluation.fairness import sure_of
from trainworthy.lifecycle.promotion.evidence import usable
from trainworthy.lifecycle.promotion.finding import (
    UNDERPOWERED,
    Finding,
    Outcome,
    declared_in_words,
    interval_in_words,
    lacking,
)
from trainworthy.lifecycle.protocol.figures import Disparity, PairDifference
from trainworthy.lifecycle.spec.benchmark import OnUnderpowered
from trainworthy.lifecycle.wording import metric_name


def fairness_findings(
    disparities: Iterable[Disparity], limits: Mapping[str, float], columns: Sequence[str],
    on_underpowered: OnUnderpowered = "shadow",
) -> Iterator[Finding]:  # fmt: skip
    """What each limit allows by each protected column: all claims and pairs of values have to keep it, at 95 % each."""
    allows, declared = UNDERPOWERED[on_underpowered], declared_in_words(on_underpowered)
    measured: dict[tuple[str, str], list[Disparity]] = {}
    for disparity in disparities:
        measured.setdefault((disparity.rate, disparity.column), []).append(disparity)
    for rate, limit in limits.items():
        for column in columns:
            of_column = measured.get((rate, column), [])
            if not of_column:
                yield Finding(allows, f"The difference of {metric_name(rate)} by {column} was not measured{declared}.")
            yield from (_finding(disparity, limit, allows, declared) for disparity in of_column)


def _finding(disparity: Disparity, limit: float, allows: Outcome, declared: str) -> Finding:
    """`allows` and `declared` are what follows from too few rows, and its wording."""
    named = f"{metric_name(disparity.rate)} by {disparity.column} ({disparity.claim})"
    values = sum(value.rate is not None for value in disparity.values)
    widest, surest = _pairs(disparity, values)
    if surest is not None and usable(surest.difference) and sure_of(surest.difference, values) > limit:
        return Finding(
            "reject", f"Limit of fairness broken: {named} {_pair_text(surest, limit)}{_left_out(disparity)}."
        )
    if widest is None or not usable(widest.difference):
        why = disparity.reason or "no finite figure of each pair of values"
        return Finding(allows, f"The difference of {named} was not measured: {why}{declared}.")
    measured, difference = f"{named} {_pair_text(widest, limit)}{_left_out(disparity)}", widest.difference
    if difference.high > limit:
        lacks = lacking(difference, limit - difference.value)
        return Finding(allows, f"Limit of fairness not safely kept: {measured}{declared}.", lacks)
    if _left_out(disparity):
        return Finding(allows, f"Limit of fairness kept by a part of the values only: {measured}{declared}.")
    return Finding("promote", f"Limit of fairness kept: {measured}.")


def _pairs(disparity: Disparity, values: int) -> tuple[PairDifference | None, PairDifference | None]:
    """The widest and the surest pair; records that do not name them say it of the extremes, which two values are."""
    if disparity.difference is None or disparity.widest is not None or disparity.surest is not None:
        return disparity.widest, disparity.surest
    extremes = PairDifference(highest=disparity.highest, lowest=disparity.lowest, difference=disparity.difference)
    return extremes if values == 2 else None, extremes


def _pair_text(pair: PairDifference, limit: float) -> str:
    return f"differs by {interval_in_words(pair.difference)} from {pair.lowest} to {pair.highest}, at most {limit:g}"


def _left_out(disparity: Disparity) -> str:
    """How many values are in no difference, since they have too few rows or groups or are too many."""
    small, more = sum(rate_of_value.rate is None for rate_of_value in disparity.values), disparity.other_values
    left_out = [f"{small} value{'s' if small > 1 else ''} of too few rows"] if small else []
    left_out += [f"{more} beyond the {len(disparity.values)} most frequent values"] if more else []
    return f"; {' and '.join(left_out)} left out" if left_out else ""
