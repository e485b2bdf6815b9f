"""A column along the axis, as counts: units × bins, units × categories, units × exact values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.drift.block_null import running_total
from trainworthy.lifecycle.drift.time_axis import Axis
from trainworthy.lifecycle.sampling import evenly_spread

# Rows of history from which bins are cut; 20 of them lie between two neighbouring 0.1 % quantiles.
_SAMPLE_ROWS = 20_000
# Beyond as many categories the rarest share a bin.
MOST_CATEGORIES = 254
# Exact values are counted by their hash: two values in one bucket of 256 only dilute what one of them does.
BUCKETS_BITS = 8


@dataclass(frozen=True)
class Numbers:
    """Numbers, booleans and durations, sorted by unit; NaN is null. All else but text comes as 0 and NaN."""

    values: np.ndarray
    axis: Axis
    unit: np.ndarray

    @cached_property
    def counts(self) -> np.ndarray:
        """Rows by unit and bin, shape (U, K): below history, between its quantiles, above it, null."""
        edges = self._edges
        bins = np.searchsorted(edges, self.values, side="right")
        bins[self.values == edges[-1]] -= 1
        bins[np.isnan(self.values)] = len(edges) + 1
        return _by_unit(self.unit, bins, self.axis.count, len(edges) + 2)

    @cached_property
    def total(self) -> np.ndarray:
        """Running total of `counts`."""
        return running_total(self.counts)

    @cached_property
    def exact(self) -> np.ndarray:
        """Rows by unit and bucket of the exact value, shape (U, 256 + 1): null is the last."""
        buckets = bucket_of(self.values)
        buckets[np.isnan(self.values)] = 2**BUCKETS_BITS
        return _by_unit(self.unit, buckets, self.axis.count, 2**BUCKETS_BITS + 1)

    @cached_property
    def comparable(self) -> bool:
        """True if both history and the window hold known values."""
        known = self.counts[:, :-1]
        return bool(known[: self.axis.history].any() and known[self.axis.history :].any())

    @cached_property
    def starts(self) -> np.ndarray:
        """First row of each unit."""
        return np.searchsorted(self.unit, np.arange(self.axis.count))

    @cached_property
    def low(self) -> np.ndarray:
        """Least value of each unit, NaN if all are null."""
        return np.fmin.reduceat(self.values, self.starts)

    @cached_property
    def high(self) -> np.ndarray:
        """Greatest value of each unit, NaN if all are null."""
        return np.fmax.reduceat(self.values, self.starts)

    def of_units(self, start: int, stop: int) -> np.ndarray:
        """The known values of these units."""
        values = self.values[np.searchsorted(self.unit, start) : np.searchsorted(self.unit, stop)]
        return values[~np.isnan(values)]

    @cached_property
    def distinct(self) -> int:
        """Different values in a sample of history."""
        return len(np.unique(self._sample))

    @cached_property
    def _sample(self) -> np.ndarray:
        history = self.of_units(0, self.axis.history)
        history = history[evenly_spread(len(history), _SAMPLE_ROWS)]
        return history[np.isfinite(history)]

    @cached_property
    def _edges(self) -> np.ndarray:
        """Quantiles of history, and those without its most frequent value, which alone could fill every quantile."""
        if not len(self._sample):
            return np.zeros(1)
        values, times = np.unique(self._sample, return_counts=True)
        at = np.r_[np.linspace(0, 1, 21), 0.99, 0.999]
        edges = np.quantile(self._sample, at, method="inverted_cdf")
        rest = np.delete(values, times.argmax()), np.delete(times, times.argmax())
        if len(rest[0]) and times.max() > 0.05 * times.sum():
            share = rest[1].cumsum() / rest[1].sum()
            edges = np.r_[edges, rest[0][np.minimum(np.searchsorted(share, at[:21:2]), len(share) - 1)]]
        return np.unique(edges)


@dataclass(frozen=True)
class Categories:
    """Text and the like as codes into `names`, sorted by unit; the code len(names) is null."""

    codes: np.ndarray
    names: tuple[str, ...]
    axis: Axis
    unit: np.ndarray

    @cached_property
    def every(self) -> np.ndarray:
        """Rows of each category in history and in the window, shape (2, categories + 1)."""
        in_window = (self.unit >= self.axis.history).astype(np.int64)
        return _by_unit(in_window, self.codes, 2, len(self.names) + 1)

    @cached_property
    def kept(self) -> np.ndarray:
        """Codes that have a bin of their own, the most frequent of history first."""
        history = self.every[0, :-1]
        return np.argsort(-history, kind="stable")[: min(MOST_CATEGORIES, int((history > 0).sum()))]

    @cached_property
    def counts(self) -> np.ndarray:
        """Rows by unit and category, shape (U, K): `kept`, then all others, then null."""
        bins = np.full(len(self.names) + 1, len(self.kept))
        bins[self.kept] = np.arange(len(self.kept))
        bins[-1] = len(self.kept) + 1
        return _by_unit(self.unit, bins[self.codes], self.axis.count, len(self.kept) + 2)

    @cached_property
    def total(self) -> np.ndarray:
        """Running total of `counts`."""
        return running_total(self.counts)

    def new_share(self, start: int, length: int) -> float:
        """Share of a block's known rows whose category no unit before the block holds."""
        unit, first = self._first_units
        first = first[np.searchsorted(unit, start) : np.searchsorted(unit, start + length)]
        return float((first >= start).mean()) if len(first) else 0.0

    @cached_property
    def _first_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each known row its unit, and the unit in which its category was first seen."""
        first = np.zeros(len(self.names) + 1, dtype=self.unit.dtype)
        # Backwards, so that the earliest row of a category is written last.
        first[self.codes[::-1]] = self.unit[::-1]
        known = self.codes < len(self.names)
        return self.unit[known], first[self.codes[known]]


def bucket_of(values: np.ndarray) -> np.ndarray:
    """The bucket of each float64 value; -0.0 and 0.0 share one."""
    bits = (values + 0.0).view(np.uint64)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits >>= np.uint64(64 - BUCKETS_BITS)
    return bits.view(np.int64)


class Reader:
    """Reads a snapshot's columns one at a time, so that memory holds one column of all rows."""

    def __init__(self, written: SplitFiles, axis: Axis) -> None:
        self._axis = axis
        schema = pq.read_schema(written.path(axis.splits[0]))
        texts = [
            field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ]
        self._files = [pq.ParquetFile(written.path(split), read_dictionary=texts) for split in axis.splits]
        self._unit = axis.unit if axis.order is None else axis.unit[axis.order]

    def read(self, name: str) -> Numbers | Categories:
        """A column along the axis."""
        parts = [file.read(columns=[name], use_threads=False).column(name) for file in self._files]
        if not pa.types.is_dictionary(parts[0].type):
            return Numbers(self._sorted(np.concatenate([_floats(part) for part in parts])), self._axis, self._unit)
        column = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        encoded = column.unify_dictionaries().combine_chunks()
        names = tuple(str(value) for value in encoded.dictionary.to_pylist())
        codes = encoded.indices.fill_null(len(names)).to_numpy()
        return Categories(self._sorted(codes), names, self._axis, self._unit)

    def _sorted(self, values: np.ndarray) -> np.ndarray:
        return values if self._axis.order is None else values[self._axis.order]


def _floats(column: Any) -> np.ndarray:
    """An Arrow column as float64 with NaN for null; a type without an order along which it could drift as 0."""
    kind = column.type
    if pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    elif not (
        pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return np.where(pc.call_function("is_null", [column]).to_numpy(), np.nan, 0.0)
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _by_unit(unit: np.ndarray, bins: np.ndarray, units: int, width: int) -> np.ndarray:
    return np.bincount(unit * width + bins, minlength=units * width).reshape(units, width)
