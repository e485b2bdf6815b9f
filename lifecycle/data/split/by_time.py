"""Splits by time: training, validation, calibration and benchmark follow each other, the embargo apart.

With lengths in days, cuts lie between whole local days, so that no day is torn. With a length in hours they lie
between instants. Both are cuts of whole numbers, ticks: of days, or of microseconds. So no tie is ever cut.

Splits by time and group: later in time, and of groups that no earlier split has.

A group belongs to the split in whose window its first row lies, and a row is kept only where its own window is its
group's. Training keeps all rows of its window. What decides is a group's first row, which stays the first as rows are
added: so a champion of an older version, which saw nothing after its own splits, knows no group of a later benchmark.
Groups hashed to splits would hold as well, but would leave out most rows: all of the training groups' later ones, and
all of the others' earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.data.days import day_of, refuse_missing_times
from trainworthy.lifecycle.data.split.hashing import refuse_nulls
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import SPLITS, RollEvery, TimeAndGroupSplit, TimeSplit, Windows, days, hours

if TYPE_CHECKING:
    import pandas as pd

_MICROSECONDS_AN_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Ticks:
    """The times of rows as whole numbers: of days, or of microseconds."""

    values: pd.Series
    whole_days: bool
    zone: Any

    def length(self, duration: str) -> int:
        """A duration in ticks."""
        return days(duration) if self.whole_days else hours(duration) * _MICROSECONDS_AN_HOUR

    def midnight(self, day: date) -> int:
        """The tick at which a local day begins."""
        import pandas as pd

        start = pd.Timestamp(day)
        if self.whole_days:
            return (start - pd.Timestamp(0)).days
        # Where clocks go forward at midnight, the day begins at one.
        local = start.tz_localize(self.zone or "UTC", nonexistent="shift_forward", ambiguous=True)
        return int(local.timestamp()) * 1_000_000

    def in_words(self, ticks: int) -> str:
        """A number of ticks in words."""
        return f"{ticks} whole days" if self.whole_days else f"{ticks / _MICROSECONDS_AN_HOUR:.1f} hours"


def split_by_time(frame: pd.DataFrame, spec: TimeSplit) -> dict[str, pd.DataFrame]:
    """Rows of each split. Rows in a gap of the embargo, or after the benchmark, belong to none.

    The benchmark is the window of its policy, by default the newest; calibration, validation and training lie before
    it, each after a gap. Raises DatasetError if the rows do not span enough time.
    """
    ticks = ticks_of(frame, spec)
    cuts = windows(ticks, spec)
    return {name: frame[(ticks.values >= cuts[name][0]) & (ticks.values < cuts[name][1])] for name in SPLITS}


def windows(ticks: Ticks, spec: Windows) -> dict[str, tuple[int, int]]:
    """First tick of each split, and the first after it."""
    first, gap = int(ticks.values.min()), ticks.length(spec.embargo)
    cuts = {"benchmark": benchmark_window(ticks, spec)}
    ends = cuts["benchmark"][0] - gap
    for name, length in (("calibration", spec.calibration), ("validation", spec.validation)):
        cuts[name] = (ends - ticks.length(length), ends)
        ends = cuts[name][0] - gap
    if ends <= first:
        raise DatasetError(
            "the rows span too few days for the declared splits",
            value=ticks.in_words(cuts["benchmark"][1] - first).replace("whole ", ""),
            fix="use a later dataset version, or shorter validation, calibration or benchmark windows",
        )
    return cuts | {"training": (first, ends)}


def benchmark_window(ticks: Ticks, spec: Windows) -> tuple[int, int]:
    """First tick of the benchmark, and the first after it. Raises DatasetError for one that has not wholly arrived."""
    policy, arrived = spec.benchmark, int(ticks.values.max()) + 1
    length = ticks.length(policy.window)
    if policy.start is not None:
        start = ticks.midnight(policy.start)
        if arrived < start + length:
            missing = f"{ticks.in_words(start + length - arrived)} of {policy.window} from {policy.start}"
            fix = "use a later dataset version, or a window that the rows cover: a pinned benchmark never changes"
            raise DatasetError("the pinned benchmark has not wholly arrived", value=f"missing: {missing}", fix=fix)
        return start, start + length
    if isinstance(policy.roll, RollEvery):
        first, every = ticks.midnight(policy.roll.from_), ticks.length(policy.roll.every)
        periods = (arrived - first) // every
        if periods < 1:
            fix = "use a later dataset version, an earlier from or a shorter every"
            missing = ticks.in_words(first + every - arrived)
            raise DatasetError("no period of the benchmark has wholly arrived", value=f"missing: {missing}", fix=fix)
        arrived = first + periods * every
    return arrived - length, arrived


def ticks_of(frame: pd.DataFrame, spec: Windows) -> Ticks:
    """The times of the rows in the unit of the cuts. Raises DatasetError."""
    import pandas as pd

    values, zone = frame[spec.column], None
    if spec.whole_days:
        return Ticks(day_of(frame, spec.column), True, zone)
    if not pd.api.types.is_datetime64_any_dtype(values):
        fix = "name a timestamp column in split.column, or write the lengths in days"
        raise DatasetError(f"the split column {spec.column} has no hours", value=str(values.dtype), fix=fix)
    refuse_missing_times(values, spec.column)
    if values.dt.tz is not None:
        zone, values = values.dt.tz, values.dt.tz_convert("UTC").dt.tz_localize(None)
    return Ticks(values.dt.as_unit("us").astype("int64"), False, zone)


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
