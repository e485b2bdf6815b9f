"""What is found in one column: each detector looks for one mechanism, and takes its threshold from history.

A change of unit by its mark: every quantile times the same number, or in the other scale of degrees.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainworthy.lifecycle.contract.model import Column
from trainworthy.lifecycle.distances import greatest_gain, jensen_shannon, null_change, psi, shares
from trainworthy.lifecycle.drift.block_null import Judged, judge, running_total
from trainworthy.lifecycle.drift.categories import recoded
from trainworthy.lifecycle.drift.columns import Categories, Numbers, bucket_of
from trainworthy.lifecycle.drift.shift import (
    CLIP_FLOOR,
    JENSEN_SHANNON_FLOOR,
    NULL_FLOOR,
    NULL_FLOOR_WEEK,
    PILE_FLOOR,
    PSI_FLOOR,
    Shift,
    lengths,
    named,
    of_judged,
)
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS

# A cap is met on day after day; a storm's greatest value on one. It holds many times the rows
# of the value next to it, and many times those that it held before: the rows
# that would lie beyond it.
_DAYS_AT_LIMIT, _TIMES = 3, 4
# A day of one value says nothing where history holds that value in most rows anyway.
_USUAL = 0.5


def piled(name: str, values: Numbers, hidden: bool) -> Iterator[Shift]:
    """One exact value holds many more rows: a default that is filled in, or a sensor of several that is stuck."""
    axis = values.axis
    exact = running_total(values.exact[:, :-1])
    for length in lengths(axis):
        judged = judge(greatest_gain, exact, axis.history, length, PILE_FLOOR)
        if judged.excess > 1:
            known = values.of_units(judged.start, judged.start + length)
            gain = shares(exact[judged.start + length] - exact[judged.start]) - shares(exact[axis.history])
            value = _most_frequent(known[bucket_of(known) == gain.argmax()])
            cause = (
                f"the one value {named(value, hidden)} holds more rows than ever: a default, or a sensor that is stuck"
            )
            yield of_judged(name, "share_of_one_value", judged, axis, cause, "look at what writes this value")
            return


def stuck(name: str, values: Numbers, hidden: bool) -> Iterator[Shift]:
    """Whole days hold one and the same value."""
    axis = values.axis
    if not axis.in_time:
        return
    known = values.counts[:, :-1].sum(1)
    single = (values.low == values.high) & (known >= FEWEST_ROWS)
    runs = _runs(single, values.low)
    longest = int(runs[: axis.history].max())
    end = int(runs[axis.history :].argmax()) + axis.history
    observed = min(int(runs[end]), end - axis.history + 1)
    allowed = max(1, 2 * longest)
    usual = (values.of_units(0, axis.history) == values.low[end]).mean() if observed > allowed else 1.0
    if usual < _USUAL:
        start = end - observed + 1
        yield Shift(
            column=name, statistic="days_of_one_value", observed=observed, threshold=allowed,
            threshold_from=f"a single day, or twice history's longest run of such days ({longest})",
            where=axis.span(start, observed),
            cause=f"every row holds {named(values.low[end], hidden)}: a sensor that is stuck, or a default",
            fix="repair the source; leave these days out until then",
        )  # fmt: skip


def _runs(single: np.ndarray, value: np.ndarray) -> np.ndarray:
    """For each day how many days up to it hold one value, the same each; shape (U,)."""
    runs = np.zeros(len(single), dtype=np.int64)
    for day in range(len(single)):
        carries_on = day > 0 and single[day - 1] and value[day - 1] == value[day]
        runs[day] = 0 if not single[day] else runs[day - 1] + 1 if carries_on else 1
    return runs


def clipped(name: str, values: Numbers, hidden: bool) -> Iterator[Shift]:
    """Days end at one value that holds many more rows than the next, and no block of history stayed within it."""
    if not values.axis.in_time:
        return
    for extreme, compared, beyond in ((values.high, 1, "greater"), (values.low, -1, "lesser")):
        for length in lengths(values.axis):
            clip = _limit(values, compared * extreme, compared, length)
            if clip is None:
                continue
            start, limit, share = clip
            yield Shift(
                column=name, statistic="share_at_limit", observed=share, threshold=CLIP_FLOOR,
                threshold_from=f"the smallest size that is worth a word; all {length} days of history go beyond",
                where=values.axis.span(start, length), fix="look for a cap at the source",
                cause=f"{named(limit, hidden)} holds many rows, and none is {beyond}, as before: values are clipped",
            )  # fmt: skip
            return


def _limit(values: Numbers, extreme: np.ndarray, sign: int, length: int) -> tuple[int, float, float] | None:
    """First unit, value and gained share of a limit; `extreme` is each unit's greatest value (least: all times -1)."""
    axis, places = values.axis, np.arange(length)
    ends = np.fmax.reduce(extreme[np.arange(axis.history - length + 1)[:, None] + places], axis=1)
    starts = np.arange(axis.history, axis.count - length + 1)
    blocks = extreme[starts[:, None] + places]
    tops = np.fmax.reduce(blocks, axis=1)
    often = (blocks == tops[:, None]).sum(axis=1) >= max(_DAYS_AT_LIMIT, length // 10)
    for place in np.flatnonzero(often & (tops < np.fmin.reduce(ends))):
        known, start = sign * values.of_units(starts[place], starts[place] + length), int(starts[place])
        at, below = (known == tops[place]).sum(), known[known < tops[place]]
        following = (below == below.max()).sum() if len(below) else 0
        before = sign * values.of_units(0, axis.history)
        usual = float((before == tops[place]).mean())
        gain = float(at / len(known)) - usual
        moved = tops[place] > before.min() and at >= 0.5 * (before >= tops[place]).mean() * len(known)
        if (
            moved
            and gain > CLIP_FLOOR
            and at >= max(FEWEST_ROWS, _TIMES * usual * len(known))
            and at >= _TIMES * following
        ):
            return start, float(sign * tops[place]), gain
    return None


def _most_frequent(values: np.ndarray) -> float:
    distinct, times = np.unique(values, return_counts=True)
    return float(distinct[times.argmax()])


# By so many times another scale of degrees has to fit better than the declared one: planted at least 3, healthy 0.6.
_FITS_BETTER = 2.5


def column_findings(column: Column, values: Numbers | Categories) -> tuple[Judged, list[Shift]]:
    """The PSI of the whole window, and the column's findings; values of a sensitive column are not named."""
    axis, name, hidden = values.axis, column.name, column.sensitive
    whole = judge(psi, values.total, axis.history, axis.length, PSI_FLOOR)
    if isinstance(values, Categories):
        findings = [*recoded(name, values, hidden)] or [*_moved(name, values, hidden)]
        return whole, [*findings, *_nulls(name, values)]
    if not values.comparable:
        return whole, [*_nulls(name, values)]
    # The most telling first: what is clipped, stuck or rescaled is distributed otherwise as well.
    moved = [*_moved(name, values, hidden)]
    rescaled = [finding for finding in moved if finding.code == RESCALED]
    findings = [*stuck(name, values, hidden)] or [*clipped(name, values, hidden)] or rescaled
    findings = findings or [*piled(name, values, hidden)] or moved
    return whole, [*(findings or _degrees(column, values)), *_nulls(name, values)]


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
        judged = judge(null_change, values.total, axis.history, length, floor)
        if judged.excess > 1:
            now = float(shares(counts[judged.start : judged.start + length].sum(0))[-1])
            before = float(shares(counts[: axis.history].sum(0))[-1])
            cause = f"{now:.1%} are null, where {before:.1%} were: "
            cause += "a join or a feed lost rows" if now > before else "something fills what was left empty"
            yield of_judged(name, "null_share_change", judged, axis, cause, "look at the join or feed of this column")
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


# Code of a column whose values are the earlier ones times a number.
RESCALED = "rescaled"
_AT = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
# Quantiles of two healthy months differ by some percent, and so do their ratios.
_ALIKE, _LEAST_FACTOR = 0.15, 1.25
_FACTORS = {
    1.609344: "miles as kilometres", 1.852: "sea miles as kilometres", 0.3048: "feet as metres",
    2.54: "inches as centimetres", 0.45359237: "pounds as kilograms", 24.0: "days as hours",
    60.0: "hours as minutes, or minutes as seconds", 3600.0: "hours as seconds", 86400.0: "days as seconds",
    100.0: "shares as percent", 1000.0: "a prefix such as kilo", 1e6: "a prefix such as mega",
}  # fmt: skip


def unit_change(values: Numbers, judged: Judged, hidden: bool) -> str:
    """The likely change of unit of the found block against the rows before it, in words; empty if there is none."""
    history = values.axis.history
    now = values.of_units(judged.start, judged.start + judged.length)
    before = values.of_units(max(0, history - values.axis.length), history)
    if min(len(now), len(before)) < 100:
        return ""
    now, before = (np.quantile(part[np.isfinite(part)], _AT) for part in (now, before))
    both = (np.abs(before) > 1e-12) & (np.abs(now) > 1e-12)
    if both.sum() < 4:
        return ""
    ratios = now[both] / before[both]
    factor = float(np.median(ratios))
    if factor <= 0 or np.abs(ratios / factor - 1).max() > _ALIKE or 1 / _LEAST_FACTOR < factor < _LEAST_FACTOR:
        return ""
    known = _known(factor)
    medians = "" if hidden else f" (median {before[3]:g}, now {now[3]:g})"
    return f"all quantiles are about {factor:.3g} times the earlier ones{medians}: " + (
        known or "another unit or scale"
    )


def _known(factor: float) -> str:
    for number, name in _FACTORS.items():
        if abs(factor / number - 1) < 0.05:
            return f"perhaps {name}"
        if abs(factor * number - 1) < 0.05:
            first, _, second = name.partition(" as ")
            return f"perhaps {second} as {first}" if second and ", or" not in name else f"perhaps the reverse of {name}"
    return ""


def as_other_degrees(values: Numbers, unit: str) -> tuple[str, float]:
    """What fits better if the column's unit names a scale of degrees, and how many times better than the unit itself.

    Judged by the two weeks on both sides of the window's start. Gives 0 times if the other scale does not fit.
    """
    history, reach = values.axis.history, min(14, values.axis.length)
    parts = values.of_units(history, history + reach), values.of_units(max(0, history - reach), history)
    if min(map(len, parts)) < 100:
        return "", 0.0
    now, before = (np.quantile(part[np.isfinite(part)], _AT) for part in parts)
    if "fahrenheit" in unit.lower():
        cause, expected = "perhaps degrees Fahrenheit as Celsius", (before - 32) / 1.8
    elif "celsius" in unit.lower():
        cause, expected = "perhaps degrees Celsius as Fahrenheit", before * 1.8 + 32
    else:
        return "", 0.0
    error, as_declared = np.abs(now - expected).max(), np.abs(now - before).max()
    return (cause, float(as_declared / max(error, 1e-9))) if error < np.ptp(expected) else ("", 0.0)
