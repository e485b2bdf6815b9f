"""What is found in one column: each detector looks for one mechanism, and takes its threshold from history."""

from __future__ import annotations

from collections.abc import Iterator

from trainworthy.lifecycle.contract.model import Column
from trainworthy.lifecycle.distances import jensen_shannon, null_change, psi, shares
from trainworthy.lifecycle.drift.blocks import Judged, judge
from trainworthy.lifecycle.drift.categories import recoded
from trainworthy.lifecycle.drift.causes import RESCALED, as_other_degrees, unit_change
from trainworthy.lifecycle.drift.columns import Categories, Numbers
from trainworthy.lifecycle.drift.shift import (
    JENSEN_SHANNON_FLOOR,
    NULL_FLOOR,
    NULL_FLOOR_WEEK,
    PSI_FLOOR,
    Shift,
    lengths,
    of_judged,
)
from trainworthy.lifecycle.drift.single_values import clipped, piled, stuck

# By so many times another scale of degrees has to fit better than the declared one: planted at least 3, healthy 0.6.
_FITS_BETTER = 2.5


def column_findings(column: Column, values: Numbers | Categories) -> tuple[Judged, list[Shift]]:
    """The PSI of the whole window, and the column's findings; values of a sensitive column are not named."""
    axis, name, hidden = values.axis, column.name, column.sensitive
    whole = judge(psi, values.total, axis.history, axis.length, PSI_FLOOR)
    if isinstance(values, Categories):
        found = [*recoded(name, values, hidden)] or [*_moved(name, values, hidden)]
        return whole, [*found, *_nulls(name, values)]
    if not values.comparable:
        return whole, [*_nulls(name, values)]
    # The most telling first: what is clipped, stuck or rescaled is distributed otherwise as well.
    moved = [*_moved(name, values, hidden)]
    rescaled = [finding for finding in moved if finding.code == RESCALED]
    found = [*stuck(name, values, hidden)] or [*clipped(name, values, hidden)] or rescaled
    found = found or [*piled(name, values, hidden)] or moved
    return whole, [*(found or _degrees(column, values)), *_nulls(name, values)]


def _moved(name: str, values: Numbers | Categories, hidden: bool) -> Iterator[Shift]:
    """The known values are distributed otherwise: by PSI, and by Jensen–Shannon, which rare bins can't drive."""
    axis, known = values.axis, values.total[:, :-1]
    for length in lengths(axis):
        by_psi = judge(psi, known, axis.history, length, PSI_FLOOR)
        by_js = judge(jensen_shannon, known, axis.history, length, JENSEN_SHANNON_FLOOR)
        if min(by_psi.excess, by_js.excess) <= 1:
            continue
        cause = unit_change(values, by_psi, hidden) if isinstance(values, Numbers) else ""
        code = RESCALED if cause else ""
        cause = cause or "the values come from elsewhere, are made in another way, or the world has changed"
        yield of_judged(name, "psi", by_psi, axis, cause, "find what changed at the source on these days", code)
        return


def _nulls(name: str, values: Numbers | Categories) -> Iterator[Shift]:
    """The share of nulls is another one."""
    axis, counts = values.axis, values.counts
    for length in lengths(axis):
        floor = NULL_FLOOR if length == axis.length else NULL_FLOOR_WEEK
        found = judge(null_change, values.total, axis.history, length, floor)
        if found.excess > 1:
            now = float(shares(counts[found.start : found.start + length].sum(0))[-1])
            before = float(shares(counts[: axis.history].sum(0))[-1])
            cause = f"{now:.1%} are null, where {before:.1%} were: "
            cause += "a join or a feed lost rows" if now > before else "something fills what was left empty"
            yield of_judged(name, "null_share_change", found, axis, cause, "look at the join or feed of this column")
            return


def _degrees(column: Column, values: Numbers) -> Iterator[Shift]:
    """Temperatures in the other scale: a season moves them further than PSI's history allows to see."""
    axis = values.axis
    cause, times = as_other_degrees(values, column.unit or "")
    if axis.in_time and times > _FITS_BETTER:
        yield Shift(
            column=column.name,
            statistic="fit_of_other_degrees",
            observed=times,
            threshold=_FITS_BETTER,
            threshold_from="how many times better than the declared unit, against the days just before",
            where=axis.span(axis.history, axis.length),
            cause=cause,
            fix="convert at the source, or declare the new unit and convert the earlier rows",
        )
