"""Counts the reference of `distribution` rules on rows: about ten bins of equal shares, or a short list of values.

Of a sensitive column no bin holds 1 to 19 rows: neighbours are merged. Its edges are round numbers, since an edge that
is cut from rows is the exact value of one of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.frame import logical_type
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.reference import Bins
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS

NUMBER_BINS, MOST_VALUES = 10, 30
# Below this share of the rows in the listed values, the bin of all others says next to nothing.
LEAST_LISTED = 0.5


def pinned_columns(contract: Contract) -> tuple[str, ...]:
    """Names of the columns that a rule of kind distribution judges."""
    return tuple(dict.fromkeys(rule.columns[0] for rule in contract.rules if rule.kind == "distribution"))


def bins_of(values: pd.Series, column: Column) -> Bins:
    """The bins of one column. Raises DatasetError if its rows can't make a reference."""
    known = values.dropna()
    if len(values) and known.empty:
        raise DatasetError("the column is null in every row", value=column.name, fix="remove its rule `distribution`")
    rows = len(known if column.sensitive else values)
    if rows < FEWEST_ROWS:
        fix = "pin on a version with more rows"
        raise DatasetError(f"{column.name} has fewer than {FEWEST_ROWS} rows to count", value=rows, fix=fix)
    _refuse_other_type(known, column)
    nulls = len(values) - len(known)
    if column.logical_type in ("string", "boolean"):
        return _listed(known, nulls, column)
    return _ranged(known, nulls, column)


def _refuse_other_type(known: pd.Series, column: Column) -> None:
    held, declared = logical_type(known), column.logical_type
    if held != declared and (declared, held) not in (("number", "integer"), ("timestamp", "date")):
        fix = "correct the dataset, or the column's logicalType"
        raise DatasetError(f"{column.name} is declared as {declared} and holds {held}", value=column.name, fix=fix)


def _listed(known: pd.Series, nulls: int, column: Column) -> Bins:
    """The most frequent values, in order, and how many rows hold any other one."""
    frequent = known.value_counts().sort_index(kind="stable").sort_values(ascending=False, kind="stable")
    listed = frequent.head(MOST_VALUES)
    if column.sensitive:
        listed = listed[listed >= FEWEST_ROWS]
        # The others must be none, or many.
        while len(listed) and 0 < len(known) - listed.sum() < FEWEST_ROWS:
            listed = listed.iloc[:-1]
    if listed.sum() < LEAST_LISTED * len(known):
        problem = f"the {MOST_VALUES} most frequent texts hold less than half of the rows"
        fix = "remove its rule `distribution`: it could see next to nothing"
        raise DatasetError(problem, value=column.name, fix=fix)
    kind: Any = bool if column.logical_type == "boolean" else str
    pairs = sorted((kind(value), int(count)) for value, count in listed.items())
    counts = [*(count for _, count in pairs), int(len(known) - listed.sum())]
    return Bins(values=tuple(value for value, _ in pairs), counts=_with_nulls(counts, nulls, column))


def _ranged(known: pd.Series, nulls: int, column: Column) -> Bins:
    """Bins between quantiles. A value that holds a tenth of the rows or more ends its bin."""
    instants = column.logical_type in ("date", "timestamp")
    ordered = pd.to_datetime(known) if instants else known
    numbers = ordered.dt.as_unit("us").astype("int64") if instants else ordered
    distinct, counts = np.unique(numbers.to_numpy(), return_counts=True)
    before = np.cumsum(counts) - counts
    starts = np.flatnonzero(np.diff(before * NUMBER_BINS // len(known), prepend=0))
    starts = starts[np.isfinite(distinct[starts])]
    edges = [edge.item() for edge in distinct[starts]]
    if column.sensitive:
        edges = _rounded_instants(edges, column) if instants else sorted({_rounded(edge) for edge in edges})
    below = [int(counts[: np.searchsorted(distinct, edge)].sum()) for edge in edges]
    sizes = [upper - lower for lower, upper in pairwise([0, *below, len(known)])]
    if column.sensitive:
        edges, sizes = _merged(edges, sizes)
    if instants:
        zone = "UTC" if getattr(ordered.dtype, "tz", None) else None
        edges = [pd.Timestamp(edge, unit="us", tz=zone).isoformat() for edge in edges]
    return Bins(edges=tuple(edges), counts=_with_nulls(sizes, nulls, column))


def _rounded(edge: float) -> float | int:
    """The number with two significant digits; a whole one stays whole."""
    rounded = float(f"{edge:.1e}")
    return int(rounded) if isinstance(edge, int) else rounded


def _rounded_instants(edges: list[int], column: Column) -> list[int]:
    """Microseconds since 1970, at a power of ten that is a tenth of what they span at most; whole days of a date."""
    day = 86_400 * 10**6
    unit = day if column.logical_type == "date" else 10**6
    step = unit * 10 ** max(0, len(str((edges[-1] - edges[0]) // unit)) - 2) if edges else unit
    return sorted({(edge + step // 2) // step * step for edge in edges})


def _merged(edges: list[Any], sizes: list[int]) -> tuple[list[Any], list[int]]:
    """The same bins, a small one joined with its next neighbour, the last one with the one before."""
    place = 0
    while place < len(sizes) and len(sizes) > 1:
        if sizes[place] >= FEWEST_ROWS:
            place += 1
            continue
        left = min(place, len(sizes) - 2)
        sizes[left : left + 2] = [sizes[left] + sizes[left + 1]]
        del edges[left]
        place = left
    return edges, sizes


def _with_nulls(counts: list[int], nulls: int, column: Column) -> tuple[int, ...]:
    """The counts and the nulls; of a sensitive column, a few nulls count to the largest bin."""
    if column.sensitive and 0 < nulls < FEWEST_ROWS:
        largest = counts.index(max(counts))
        counts, nulls = [count + nulls * (place == largest) for place, count in enumerate(counts)], 0
    return (*counts, nulls)
