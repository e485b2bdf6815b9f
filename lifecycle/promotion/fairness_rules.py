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
    for one in disparities:
        measured.setdefault((one.rate, one.column), []).append(one)
    for rate, limit in limits.items():
        for column in columns:
            found = measured.get((rate, column), [])
            if not found:
                yield Finding(allows, f"The difference of {metric_name(rate)} by {column} was not measured{declared}.")
            yield from (_finding(one, limit, allows, declared) for one in found)


def _finding(one: Disparity, limit: float, allows: Outcome, declared: str) -> Finding:
    """`allows` and `declared` are what follows from too few rows, and how that is told."""
    named = f"{metric_name(one.rate)} by {one.column} ({one.claim})"
    values = sum(value.rate is not None for value in one.values)
    widest, surest = _pairs(one, values)
    if surest is not None and usable(surest.difference) and sure_of(surest.difference, values) > limit:
        return Finding("reject", f"Limit of fairness broken: {named} {_told(surest, limit)}{_left_out(one)}.")
    if widest is None or not usable(widest.difference):
        why = one.reason or "no finite figure of each pair of values"
        return Finding(allows, f"The difference of {named} was not measured: {why}{declared}.")
    told, difference = f"{named} {_told(widest, limit)}{_left_out(one)}", widest.difference
    if difference.high > limit:
        lacks = lacking(difference, limit - difference.value)
        return Finding(allows, f"Limit of fairness not safely kept: {told}{declared}.", lacks)
    if _left_out(one):
        return Finding(allows, f"Limit of fairness kept by a part of the values only: {told}{declared}.")
    return Finding("promote", f"Limit of fairness kept: {told}.")


def _pairs(one: Disparity, values: int) -> tuple[PairDifference | None, PairDifference | None]:
    """The widest and the surest pair; records that do not name them say it of the extremes, which two values are."""
    if one.difference is None or one.widest is not None or one.surest is not None:
        return one.widest, one.surest
    extremes = PairDifference(highest=one.highest, lowest=one.lowest, difference=one.difference)
    return extremes if values == 2 else None, extremes


def _told(pair: PairDifference, limit: float) -> str:
    return f"differs by {interval_in_words(pair.difference)} from {pair.lowest} to {pair.highest}, at most {limit:g}"


def _left_out(disparity: Disparity) -> str:
    """How many values are in no difference, since they have too few rows or groups or are too many."""
    small, more = sum(one.rate is None for one in disparity.values), disparity.other_values
    found = [f"{small} value{'s' if small > 1 else ''} of too few rows"] if small else []
    found += [f"{more} beyond the {len(disparity.values)} most frequent values"] if more else []
    return f"; {' and '.join(found)} left out" if found else ""
