"""Single values that hold what many held before: defaults, sensors that are stuck, caps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainworthy.lifecycle.distances import greatest_gain, shares
from trainworthy.lifecycle.drift.block_null import judge, running_total
from trainworthy.lifecycle.drift.columns import Numbers, bucket_of
from trainworthy.lifecycle.drift.shift import CLIP_FLOOR, PILE_FLOOR, Shift, lengths, named, of_judged
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS

if TYPE_CHECKING:
    import numpy as np

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
        found = judge(greatest_gain, exact, axis.history, length, PILE_FLOOR)
        if found.excess > 1:
            known = values.of_units(found.start, found.start + length)
            gain = shares(exact[found.start + length] - exact[found.start]) - shares(exact[axis.history])
            value = _most_frequent(known[bucket_of(known) == gain.argmax()])
            cause = (
                f"the one value {named(value, hidden)} holds more rows than ever: a default, or a sensor that is stuck"
            )
            yield of_judged(name, "share_of_one_value", found, axis, cause, "look at what writes this value")
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
    import numpy as np

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
            found = _limit(values, compared * extreme, compared, length)
            if found is None:
                continue
            start, limit, share = found
            yield Shift(
                column=name, statistic="share_at_limit", observed=share, threshold=CLIP_FLOOR,
                threshold_from=f"the smallest size that is worth a word; all {length} days of history go beyond",
                where=values.axis.span(start, length), fix="look for a cap at the source",
                cause=f"{named(limit, hidden)} holds many rows, and none is {beyond}, as before: values are clipped",
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
    import numpy as np

    found, times = np.unique(values, return_counts=True)
    return float(found[times.argmax()])
