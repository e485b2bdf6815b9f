"""Categories that come and go: another coding, a feed that was lost, values that no model has seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainworthy.lifecycle.drift.block_null import margin, source
from trainworthy.lifecycle.drift.columns import Categories
from trainworthy.lifecycle.drift.shift import NEW_FLOOR, Shift, lengths, listed
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS

# A code list, such as that of carriers, has few values, and none of them leaves for good unnoticed. Of more values
# (destinations, aircraft models) rare ones come and go: BDL, 0.2 % of all flights, ended in July.
CODE_LIST, _REGULAR, _LEAST_SHARE = 32, 0.95, 0.005


def recoded(name: str, values: Categories, hidden: bool) -> Iterator[Shift]:
    """Categories that were never seen before, and regular ones that are gone."""
    names = _new_names(values)
    new, gone = _new(name, values, names, hidden), _gone(name, values, hidden)
    if gone and names:
        cause = (
            f"{gone.cause}; never seen before: {listed(names, hidden)}: the same values may be written in another way"
        )
        yield (new or gone).model_copy(
            update={"cause": cause, "fix": "map the new coding to the old one, or train on it"}
        )
    else:
        yield from (finding for finding in (new, gone) if finding)


def _new_names(values: Categories) -> list[str]:
    """Categories that only the window holds, the most frequent first; of few rows none is named."""
    history, window = values.every[:, :-1]
    return [values.names[code] for code in np.argsort(-window) if history[code] == 0 and window[code] >= FEWEST_ROWS]


def _new(name: str, values: Categories, names: list[str], hidden: bool) -> Shift | None:
    axis, length = values.axis, values.axis.length
    starts = range(length, axis.history - length + 1, max(1, length // 7))
    shown = max((values.new_share(start, length) for start in starts), default=0.0)
    observed = values.new_share(axis.history, length)
    threshold = max(NEW_FLOOR, margin(axis.history / length) * shown)
    if observed <= threshold:
        return None
    return Shift(
        column=name, statistic="new_categories_share", observed=observed, threshold=threshold,
        threshold_from=source(threshold, NEW_FLOOR, axis.history / length), where=axis.span(axis.history, length),
        cause=f"never seen before: {listed(names, hidden)}", fix="train on rows that hold these values, or map them",
    )  # fmt: skip


def _gone(name: str, values: Categories, hidden: bool) -> Shift | None:
    """A category that nearly every unit of history holds, with enough rows to be missed, and the newest block none."""
    axis, counts = values.axis, values.counts[:, : len(values.kept)]
    history = counts[: axis.history]
    regular = (history > 0).mean(0) >= _REGULAR
    for length in lengths(axis):
        expected = history.sum(0) / axis.history * length
        enough = expected >= FEWEST_ROWS
        if len(values.kept) > CODE_LIST:
            enough &= history.sum(0) >= _LEAST_SHARE * history.sum()
        newest = counts[axis.count - length :].sum(0) == 0
        missed = np.flatnonzero(regular & enough & newest)
        if len(missed):
            names = [values.names[values.kept[place]] for place in missed]
            return Shift(
                column=name, statistic="rows_of_vanished_categories_expected", observed=float(expected[missed].sum()),
                threshold=FEWEST_ROWS, threshold_from=f"at least {_REGULAR:.0%} of history's {axis.noun} hold them",
                where=axis.span(axis.count - length, length), cause=f"gone: {listed(names, hidden)}",
                fix="ask whether their feed was lost; if they ended, nothing is to be done",
            )  # fmt: skip
    return None
