"""Splits by time and group: later in time, and of groups that no earlier split has.

A group belongs to the split in whose window its first row lies, and a row is kept only where its own window is its
group's. Training keeps all rows of its window. What decides is a group's first row, which stays the first as rows are
added: so a champion of an older version, which saw nothing after its own splits, knows no group of a later benchmark.
Groups hashed to splits would hold as well, but would leave out most rows: all of the training groups' later ones, and
all of the others' earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.split.by_time import ticks_of, windows
from trainworthy.lifecycle.data.split.hashing import refuse_nulls
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import SPLITS, TimeAndGroupSplit

if TYPE_CHECKING:
    import pandas as pd

# With fewer rows of new groups, a model in service almost never meets one, and a verdict on these would be about
# something else. Flights by tail number have 0.001 to 0.010 in a window of 30 days, and up to 0.05 in one of 90.
LEAST_NEW = 0.05


def split_by_time_and_group(rows: pd.DataFrame, spec: TimeAndGroupSplit) -> dict[str, pd.DataFrame]:
    """Rows of each split. Raises DatasetError where groups have nulls, or a later window has almost no new group."""
    refuse_nulls(rows[spec.group])
    ticks = ticks_of(rows, spec)
    first = ticks.values.groupby(rows[spec.group], observed=True).transform("min")
    splits: dict[str, pd.DataFrame] = {}
    for name, (start, end) in windows(ticks, spec).items():
        window = (ticks.values >= start) & (ticks.values < end)
        new = window & (first >= start)
        if new.sum() < LEAST_NEW * window.sum():
            raise _recurring(spec.group, name, int(new.sum()), int(window.sum()))
        splits[name] = rows[new]
    return {name: splits[name] for name in SPLITS}


def _recurring(group: str, name: str, new: int, rows: int) -> DatasetError:
    return DatasetError(
        f"nearly all groups of {group} recur: {100 - 100 * new / rows:.1f} % of the rows in the {name} window are of "
        "groups that occur before it, so that a split by time and group leaves nothing to judge by",
        value=f"{new} of {rows} rows are of new groups",
        fix="use by: time and resample_by the day, since the model will know its groups; or by: group, if it is new "
        "groups that count",
    )
