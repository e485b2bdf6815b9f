"""Columns of a table as pandas values on which comparisons are exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.table import Table, logical_name
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.common_type import plain_type

# The first whole number that floats of 64 bits don't tell from its neighbour.
INEXACT = 2**53


def read_frame(table: Table, columns: Sequence[str]) -> pd.DataFrame:
    """These columns of all files, the rows numbered; integers with nulls as pandas' Int64. Raises DatasetError."""
    if not columns:
        return pd.DataFrame(index=pd.RangeIndex(table.rows))
    parts: dict[str, list[Any]] = {name: [] for name in columns}
    for path in table.paths:
        try:
            rows = pq.ParquetFile(path).read(columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            fix = "remove the file and fetch it again"
            raise DatasetError(f"{path.name} can't be read: {error}", value=str(path), fix=fix) from None
        for name in columns:
            parts[name] += _as(rows.column(name), table.types[name]).chunks
    return pd.DataFrame({name: _series(pa.chunked_array(parts[name], table.types[name])) for name in columns})


def _as(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type != kind and plain_type(values.type) != values.type:
        values = values.cast(plain_type(values.type))
    return values.cast(kind)


def _series(values: pa.ChunkedArray) -> pd.Series:
    kind, types = values.type, pa.types
    known = logical_name(kind) in ("string", "integer", "number", "boolean", "date", "timestamp")
    if not known:
        # Of other types only nulls are counted.
        return pd.Series(np.where(values.is_valid().to_numpy(), 0.0, np.nan))
    if types.is_float32(kind):
        values = values.cast(pa.float64())
    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.bool_(): pd.BooleanDtype()}
    has_nulls = values.null_count > 0
    return values.to_pandas(types_mapper=nullable.get if has_nulls else None, date_as_object=False).reset_index(
        drop=True
    )


def own_values(values: pd.Series) -> pd.Series:
    """The values as Great Expectations judges them fast: integers with nulls as floats where these are exact."""
    if values.dtype not in ("Int64", "UInt64"):
        return values
    present = values.dropna()
    largest = max(abs(int(present.min())), abs(int(present.max()))) if len(present) else 0
    return values.astype("float64") if largest < INEXACT else values


def ticks_or_values(values: pd.Series, kind: pa.DataType) -> pd.Series:
    """Dates and times as whole ticks of the table's type since 1970 (days of a date); other values as they are."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return own_values(values)
    numbers = values.dt.as_unit("s" if pa.types.is_date(kind) else kind.unit).astype("int64").astype("Int64")
    numbers = numbers // 86_400 if pa.types.is_date(kind) else numbers
    numbers = numbers.mask(values.isna())
    return own_values(numbers) if bool(values.isna().any()) else numbers.astype("int64")


def local_hours(rows: pd.DataFrame, instant: str, hour: str, zone: str) -> pd.DataFrame:
    """The instants' hour of day in the zone, beside the column of hours."""
    return pd.DataFrame({instant: rows[instant].dt.tz_convert(zone).dt.hour, hour: own_values(rows[hour])})
