"""What is found in one column: each detector looks for one mechanism, and all take their threshold from history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lifecycle.drift.axis import Axis
from lifecycle.drift.blocks import Judged, judge, margin, running_total
from lifecycle.drift.causes import unit_change
from lifecycle.drift.columns import Categories, Numbers, bucket_of
from lifecycle.drift.statistics import greatest_gain, jensen_shannon, null_change, psi, shares
from lifecycle.records import Frozen

if TYPE_CHECKING:
    import numpy as np

# Effect sizes below which nothing is a finding, whatever history showed. PSI: 0.1 is the usual "moderate".
PSI_FLOOR = 0.1
JENSEN_SHANNON_FLOOR = 0.01
NULL_FLOOR, NULL_FLOOR_WEEK = 0.05, 0.2
PILE_FLOOR = 0.06
CLIP_FLOOR = 0.005
# A cap is met day after day; a storm's greatest value on one. It holds many times the rows
# of the value next to it, and many times those that it held before.
_DAYS_AT_LIMIT, _TIMES = 0.5, 4
NEW_FLOOR = 0.01
# Rows below which a category or a day says nothing, and a value is not named.
FEWEST_ROWS = 20
# A code list, such as that of carriers, has few values, and none of them leaves for good unnoticed. Of more values
# (destinations, aircraft models) rare ones come and go: BDL, 0.2 % of all flights, ended in July.
_CODE_LIST, _REGULAR, _LEAST_SHARE = 32, 0.95, 0.005
_NAMED = 5
WEEK = 7


class Finding(Frozen):
    """One thing that is unusual about a column (None: about the rows): what was seen, and what may be."""

    column: str | None
    statistic: str
    observed: float
    threshold: float
    threshold_from: str
    where: str
    cause: str
    fix: str

    @property
    def excess(self) -> float:
        """How far beyond the threshold, as a ratio; for telling the greatest first."""
        return self.observed / self.threshold if self.threshold else self.observed


def lengths(axis: Axis) -> tuple[int, ...]:
    """The block lengths at which a window is looked at: all of it, and its weeks if it has more than two."""
    return (axis.length, WEEK) if axis.in_time and axis.length > 2 * WEEK else (axis.length,)


def column_findings(name: str, values: Numbers | Categories, hidden: bool) -> tuple[Judged, list[Finding]]:
    """The PSI of the whole window, and the column's findings. A `hidden` column's values are not named."""
    axis = values.axis
    whole = judge(psi, values.total, axis.history, axis.length, PSI_FLOOR)
    if isinstance(values, Numbers):
        found = [*_moved(name, values, hidden), *_nulls(name, values)]
        for detector in (_stuck, _clipped, _piled):
            if not found:
                found += detector(name, values, hidden)
    else:
        found = [*_recoded(name, values, hidden)] or [*_moved(name, values, hidden)]
        found += _nulls(name, values)
    return whole, found


def _moved(name: str, values: Numbers | Categories, hidden: bool) -> Iterator[Finding]:
    """The distribution of the known values is another one: by PSI, and by Jensen–Shannon, which rare bins can't drive."""
    axis, known = values.axis, values.total[:, :-1]
    for length in lengths(axis):
        by_psi = judge(psi, known, axis.history, length, PSI_FLOOR)
        by_js = judge(jensen_shannon, known, axis.history, length, JENSEN_SHANNON_FLOOR)
        if by_psi.excess <= 1 or by_js.excess <= 1:
            continue
        cause = "the values come from elsewhere, are made in another way, or the world has changed"
        if isinstance(values, Numbers):
            cause = unit_change(values, by_psi, hidden) or cause
        yield _finding(name, "psi", by_psi, axis, cause, "find what changed at the source on these days")
        return


def _nulls(name: str, values: Numbers | Categories) -> Iterator[Finding]:
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
            yield _finding(name, "null_share_change", found, axis, cause, "look at the join or feed of this column")
            return


def _piled(name: str, values: Numbers, hidden: bool) -> Iterator[Finding]:
    """One exact value holds many more rows: a default that is filled in, or a sensor of several that is stuck."""
    axis = values.axis
    exact = running_total(values.exact[:, :-1])
    for length in lengths(axis):
        found = judge(greatest_gain, exact, axis.history, length, PILE_FLOOR)
        if found.excess > 1:
            known = values.of_units(found.start, found.start + length)
            gain = shares(exact[found.start + length] - exact[found.start]) - shares(exact[axis.history])
            value = _most_frequent(known[bucket_of(known) == gain.argmax()])
            cause = f"the one value {_named(value, hidden)} holds more rows than ever: a default, or a sensor that is stuck"
            yield _finding(name, "share_of_one_value", found, axis, cause, "look at what writes this value")
            return


def _stuck(name: str, values: Numbers, hidden: bool) -> Iterator[Finding]:
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
    if observed > allowed:
        start = end - observed + 1
        yield Finding(
            column=name, statistic="days_of_one_value", observed=observed, threshold=allowed,
            threshold_from=f"a single day, or twice history's longest run of such days ({longest})",
            where=axis.span(start, observed), cause=f"every row holds {_named(values.low[end], hidden)}: a sensor that is stuck, or a default",
            fix="repair the source; leave these days out until then",
        )  # fmt: skip


def _runs(single: np.ndarray, value: np.ndarray) -> np.ndarray:
    """For each day how many days up to it hold one value, the same each; shape (U,)."""
    import numpy as np

    runs = np.zeros(len(single), dtype=np.int64)
    for day in range(len(single)):
        carries_on = day > 0 and single[day - 1] and value[day - 1] == value[day]
        runs[day] = 0 if not single[day] else runs[day - 1] + 1 if carries_on else 1
    return runs


def _clipped(name: str, values: Numbers, hidden: bool) -> Iterator[Finding]:
    """Day after day ends at one value that holds many more rows than the next, and no block of history stayed within it."""
    if not values.axis.in_time:
        return
    for extreme, compared, beyond in ((values.high, 1, "greater"), (values.low, -1, "lesser")):
        for length in lengths(values.axis):
            found = _limit(values, compared * extreme, compared, length)
            if found is None:
                continue
            start, limit, share = found
            yield Finding(
                column=name, statistic="share_at_limit", observed=share, threshold=CLIP_FLOOR,
                threshold_from=f"the smallest size that is worth a word; every {length} days of history went beyond the value",
                where=values.axis.span(start, length), fix="look for a cap at the source",
                cause=f"{_named(limit, hidden)} holds many rows, and none is {beyond}, as they were before: values are clipped",
            )  # fmt: skip
            return


def _limit(values: Numbers, extreme: np.ndarray, sign: int, length: int) -> tuple[int, float, float] | None:
    """First unit, value and gained share of a limit; `extreme` is each unit's greatest value (least: all times -1)."""
    import numpy as np

    axis, places = values.axis, np.arange(length)
    ends = np.fmax.reduce(extreme[np.arange(axis.history - length + 1)[:, None] + places], axis=1)
    starts = np.arange(axis.history, axis.count - length + 1)
    blocks = extreme[starts[:, None] + places]
    tops = np.fmax.reduce(blocks, axis=1)
    often = (blocks == tops[:, None]).mean(axis=1) >= _DAYS_AT_LIMIT
    for place in np.flatnonzero(often & (tops < np.fmin.reduce(ends))):
        known, start = sign * values.of_units(starts[place], starts[place] + length), int(starts[place])
        at, below = (known == tops[place]).sum(), known[known < tops[place]]
        following = (below == below.max()).sum() if len(below) else 0
        before = sign * values.of_units(0, axis.history)
        usual = float((before == tops[place]).mean())
        gain = float(at / len(known)) - usual
        new = gain > CLIP_FLOOR and at >= _TIMES * usual * len(known)
        if new and at >= FEWEST_ROWS and at >= _TIMES * following:
            return start, float(sign * tops[place]), gain
    return None


def _recoded(name: str, values: Categories, hidden: bool) -> Iterator[Finding]:
    """Categories that were never seen before, and regular ones that are gone."""
    new, gone = _new(name, values, hidden), _gone(name, values, hidden)
    if new and gone:
        cause = f"{new.cause}; {gone.cause}: the same values may be written in another way"
        yield new.model_copy(update={"cause": cause, "fix": "map the new coding to the old one, or train on the new one"})
    else:
        yield from (finding for finding in (new, gone) if finding)


def _new(name: str, values: Categories, hidden: bool) -> Finding | None:
    import numpy as np

    axis, seen, length = values.axis, values.first_seen, values.axis.length
    rows = np.maximum(seen.sum(1), 1)
    starts = np.arange(length, axis.history - length + 1, max(1, length // 7))
    shown = [seen[s : s + length, s:].sum() / rows[s : s + length].sum() for s in starts]
    observed = float(seen[axis.history :, axis.history :].sum() / rows[axis.history :].sum())
    threshold = max(NEW_FLOOR, margin(axis.history / length) * max(shown, default=0.0))
    if observed <= threshold:
        return None
    history, window = values.every[:, :-1]
    names = [values.names[code] for code in np.argsort(-window) if history[code] == 0 and window[code] >= FEWEST_ROWS]
    return Finding(
        column=name, statistic="new_categories_share", observed=observed, threshold=threshold,
        threshold_from=_source(threshold, NEW_FLOOR, axis.history / length), where=axis.span(axis.history, length),
        cause=f"never seen before: {_listed(names, hidden)}", fix="train on rows that hold these values, or map them",
    )  # fmt: skip


def _gone(name: str, values: Categories, hidden: bool) -> Finding | None:
    """A category that nearly every unit of history holds, with enough rows to be missed, and the newest block none."""
    import numpy as np

    axis, counts = values.axis, values.counts[:, : len(values.kept)]
    history = counts[: axis.history]
    regular = (history > 0).mean(0) >= _REGULAR
    for length in lengths(axis):
        expected = history.sum(0) / axis.history * length
        enough = expected >= FEWEST_ROWS
        if len(values.kept) > _CODE_LIST:
            enough &= history.sum(0) >= _LEAST_SHARE * history.sum()
        newest = counts[axis.count - length :].sum(0) == 0
        missed = np.flatnonzero(regular & enough & newest)
        if len(missed):
            names = [values.names[values.kept[place]] for place in missed]
            return Finding(
                column=name, statistic="rows_of_vanished_categories_expected", observed=float(expected[missed].sum()),
                threshold=FEWEST_ROWS, threshold_from=f"at least {_REGULAR:.0%} of history's {axis.noun} hold them",
                where=axis.span(axis.count - length, length), cause=f"gone: {_listed(names, hidden)}",
                fix="ask whether their feed was lost; if they ended, nothing is to be done",
            )  # fmt: skip
    return None


def _finding(name: str, statistic: str, judged: Judged, axis: Axis, cause: str, fix: str) -> Finding:
    return Finding(
        column=name, statistic=statistic, observed=judged.observed, threshold=judged.threshold,
        threshold_from=f"{judged.source}, against {judged.against}", where=axis.span(judged.start, judged.length),
        cause=cause, fix=fix,
    )  # fmt: skip


def _source(threshold: float, floor: float, blocks: float) -> str:
    return Judged(0.0, threshold, "", 0, 1, blocks, floor).source


def _most_frequent(values: np.ndarray) -> float:
    import numpy as np

    found, times = np.unique(values, return_counts=True)
    return float(found[times.argmax()])


def _named(value: float, hidden: bool) -> str:
    return "(of a sensitive column)" if hidden else f"{value:g}"


def _listed(names: list[str], hidden: bool) -> str:
    if hidden or not names:
        return f"{len(names)} values" if hidden else "rare values"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
