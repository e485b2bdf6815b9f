"""The rows of a table, batch after batch, as polars frames: only the columns asked for, each in the table's type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.table import Table
from trainworthy.lifecycle.errors import DatasetError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# Rows that are held at once: 66 columns of them take about 70 MB. Twice as many save no CPU.
BATCH_ROWS = 131_072


def batches(table: Table, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Frames of at most BATCH_ROWS rows in the files' order; a NaN is a null, and a time zone is UTC.

    Raises DatasetError for a file that can't be read.
    """
    import polars as pl
    import pyarrow.parquet as pq

    for path in table.paths:
        for first in range(0, pq.read_metadata(path).num_rows, BATCH_ROWS):
            try:
                # A selector, since pl.col takes a name such as ^a$ for a pattern.
                rows = pl.scan_parquet(path, glob=False).select(pl.selectors.by_name(*columns))
                frame = rows.slice(first, BATCH_ROWS).collect()
            except (OSError, pl.exceptions.PolarsError) as error:
                fix = "remove the file and fetch it again"
                raise DatasetError(f"{path.name} can't be read: {error}", value=str(path), fix=fix) from None
            yield pl.DataFrame([_as(frame.get_column(name), table.types[name]) for name in columns])


def _as(values: pl.Series, kind: pa.DataType) -> pl.Series:
    import polars as pl

    dtype = polars_type(kind)
    if dtype is not None and values.dtype != dtype:
        zone = isinstance(values.dtype, pl.Datetime) and values.dtype.time_zone
        values = values.dt.convert_time_zone("UTC").cast(dtype) if zone else values.cast(dtype)
    return values.fill_nan(None) if values.dtype.is_float() else values


def polars_type(kind: pa.DataType) -> Any:
    """The polars type of a column that rules judge; None for other types, of which only nulls are counted."""
    import polars as pl
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pl.Datetime(kind.unit, kind.tz)
    plain = {
        pa.string(): pl.String(), pa.bool_(): pl.Boolean(), pa.int64(): pl.Int64(), pa.uint64(): pl.UInt64(),
        pa.float32(): pl.Float32(), pa.float64(): pl.Float64(), pa.date32(): pl.Date(),
    }  # fmt: skip
    return plain.get(kind)
