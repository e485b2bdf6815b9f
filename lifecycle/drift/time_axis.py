"""The axis along which drift is judged: whole days, the newest ones the window; for splits without time, whole groups.

Without time there is no newest window: the benchmark is held against training, and groups are dealt at random into
units of equal size, so that a block of them is to training what the benchmark is to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from trainworthy.lifecycle.data.days import days_of
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.spec.split import SplitSpec

BEFORE = ("training", "validation", "calibration")
WINDOW = "benchmark"
# Units that training's groups are dealt into: enough for blocks of an eighth, few enough to hold many groups each.
_UNITS = 48
_SEED = 0


@dataclass(frozen=True)
class Axis:
    """Rows by unit (day or set of groups), history first, then the window.

    `unit` has shape (N,) in the order of `splits`' rows one after the other; `names` are the units' ISO days, empty
    where units are no days.
    """

    splits: tuple[str, ...]
    unit: np.ndarray
    count: int
    history: int
    names: tuple[str, ...]
    noun: str

    @property
    def length(self) -> int:
        """Units of the window."""
        return self.count - self.history

    @property
    def in_time(self) -> bool:
        return bool(self.names)

    @cached_property
    def order(self) -> np.ndarray | None:
        """Row numbers sorted by unit; None if they already are."""
        return None if bool((np.diff(self.unit) >= 0).all()) else np.argsort(self.unit, kind="stable")

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of each unit, shape (count,)."""
        return np.bincount(self.unit, minlength=self.count)

    def span(self, start: int, length: int) -> str:
        """A block of units in words."""
        if not self.in_time:
            return "benchmark"
        first, last = self.names[start], self.names[start + length - 1]
        return first if first == last else f"{first} to {last}"


def axis_of(written: SplitFiles, spec: SplitSpec) -> Axis:
    """The axis of a snapshot's written splits."""
    column = spec.time_column
    return _days_axis(written, column) if column else _groups_axis(written, spec.resample_by)


def _days_axis(written: SplitFiles, column: str) -> Axis:
    """Days that have rows; days of the window are those of the benchmark."""
    days = [days_of(_column(written, split, column)) for split in (*BEFORE, WINDOW)]
    distinct_days, unit = np.unique(np.concatenate(days), return_inverse=True)
    history = int(np.searchsorted(distinct_days, days[-1].min()))
    names = tuple(str(day) for day in distinct_days.astype("datetime64[D]"))
    return Axis((*BEFORE, WINDOW), unit, len(distinct_days), history, names, "days")


def _groups_axis(written: SplitFiles, column: str) -> Axis:
    before, window = (_codes(_column(written, split, column)) for split in (BEFORE[0], WINDOW))
    units = min(_UNITS, len(np.unique(before)))
    in_window = max(1, round(units * len(window) / len(before)))
    unit = np.concatenate([_dealt(before, units), units + _dealt(window, in_window)])
    return Axis((BEFORE[0], WINDOW), unit, units + in_window, units, (), f"parts of equal size, by whole {column}")


def _dealt(groups: np.ndarray, units: int) -> np.ndarray:
    """Each row's unit: groups in random order, cut where the rows reach the next share."""
    sizes = np.bincount(groups)
    order = np.random.default_rng(_SEED).permutation(len(sizes))
    middle = np.empty(len(sizes))
    middle[order] = np.cumsum(sizes[order]) - sizes[order] / 2
    return np.minimum((middle / len(groups) * units).astype(np.int64), units - 1)[groups]


def _codes(values: Any) -> np.ndarray:
    return values.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()


def _column(written: SplitFiles, split: str, column: str) -> Any:
    return pq.ParquetFile(written.path(split)).read(columns=[column]).column(column)
