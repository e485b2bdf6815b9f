"""Rows that share their values with another row, across batches, without holding all rows.

A pass keeps a 64-bit hash a row (8 bytes); equal rows have equal hashes, so without two equal hashes every row is
unique. Otherwise the rows of such a hash are read again and compared by their values: a collision is no duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from trainworthy.lifecycle.contract.batches import batches
from trainworthy.lifecycle.contract.table import Table


def key_rows(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The values to compare. A null alone equals nothing; beside other columns it is a value like any other."""
    rows = frame.select([_canonical(frame.get_column(name)) for name in columns])
    return rows.drop_nulls() if len(columns) == 1 else rows


def _canonical(values: pl.Series) -> pl.Series:
    """-0.0 equals 0.0, but its hash may differ."""
    return values + 0.0 if values.dtype.is_float() else values


def hashes(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """One hash a row that counts."""
    return key_rows(frame, columns).hash_rows()


def repeated(parts: Sequence[pl.Series]) -> pl.Series:
    """The hashes that came more than once, each once."""
    ordered = pl.concat(parts).sort() if parts else pl.Series(dtype=pl.UInt64)
    return ordered.filter(ordered == ordered.shift(1)).unique()


def duplicates(table: Table, columns: Sequence[str], candidates: pl.Series) -> pl.DataFrame:
    """The values that more than one row holds, with their rows in the last column `""`."""
    parts: list[pl.DataFrame] = []
    for frame in batches(table, columns) if len(candidates) else ():
        rows = key_rows(frame, columns)
        rows = rows.filter(rows.hash_rows().is_in(candidates.implode()))
        parts.append(rows.group_by(pl.all()).agg(pl.len().cast(pl.Int64).alias("")))
    if not parts:
        return pl.DataFrame()
    shared = pl.concat(parts).group_by(pl.exclude("")).agg(pl.col("").sum())
    return shared.filter(pl.col("") > 1)


def all_duplicates(table: Table, columns: Sequence[str]) -> pl.DataFrame:
    """The same from the start: a pass for the hashes, and one for the candidates."""
    return duplicates(table, columns, repeated([hashes(frame, columns) for frame in batches(table, columns)]))


def is_duplicate(frame: pl.DataFrame, columns: Sequence[str], repeated_rows: pl.DataFrame) -> pl.Series:
    """True for each row of the frame whose values are among the duplicates."""
    rows = frame.select([_canonical(frame.get_column(name)) for name in columns])
    joined = rows.join(repeated_rows, on=list(columns), how="left", nulls_equal=True, maintain_order="left")
    return joined.get_column("").is_not_null()


def rows_of(repeated_rows: pl.DataFrame) -> int:
    """How many rows the duplicates are."""
    return int(repeated_rows.get_column("").sum()) if repeated_rows.width else 0
