"""Splits by time: training, validation, calibration and benchmark follow each other, the embargo apart.

With lengths in days, cuts lie between whole local days, so that no day is torn. With a length in hours they lie
between instants. Both are cuts of whole numbers, ticks: of days, or of microseconds. So no tie is ever cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.data.days import day_of, refuse_missing_times
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import SPLITS, RollEvery, TimeSplit, Windows, days, hours

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

    def told(self, ticks: int) -> str:
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
            value=ticks.told(cuts["benchmark"][1] - first).replace("whole ", ""),
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
            missing = f"{ticks.told(start + length - arrived)} of {policy.window} from {policy.start}"
            fix = "use a later dataset version, or a window that the rows cover: a pinned benchmark never changes"
            raise DatasetError("the pinned benchmark has not wholly arrived", value=f"missing: {missing}", fix=fix)
        return start, start + length
    if isinstance(policy.roll, RollEvery):
        first, every = ticks.midnight(policy.roll.from_), ticks.length(policy.roll.every)
        periods = (arrived - first) // every
        if periods < 1:
            fix = "use a later dataset version, an earlier from or a shorter every"
            missing = ticks.told(first + every - arrived)
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
