"""The day of a row: that on the clocks of the column's own time zone, for splits, leakage, drift and history alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def days_of(values: Any) -> np.ndarray:
    """Number of the day of each date or timestamp of an Arrow column, in its own zone; shape (N,), int32."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = pc.call_function("local_timestamp", [values])
    return values.cast(pa.date32(), safe=False).cast(pa.int32()).to_numpy(zero_copy_only=False)


def day_of(frame: pd.DataFrame, column: str) -> pd.Series:
    """Number of the day of a date or timestamp, in the column's own time zone. Raises DatasetError."""
    import pandas as pd
    import pyarrow as pa

    values = frame[column]
    # Parquet's date32 is read as Python dates.
    is_date = pd.api.types.infer_dtype(values, skipna=True) == "date"
    if not is_date and not pd.api.types.is_datetime64_any_dtype(values):
        fix = "name a date or timestamp column in split.column"
        raise DatasetError(f"the split column {column} is not a date or timestamp", value=str(values.dtype), fix=fix)
    refuse_missing_times(values, column)
    return pd.Series(days_of(pa.Array.from_pandas(values)).astype("int64"), index=frame.index, name=column)


def refuse_missing_times(values: pd.Series, column: str) -> None:
    """Raises DatasetError for nulls in the column by which rows are split, or for no row at all."""
    if values.isna().any() or not len(values):
        fix = "require the column in contract.yaml"
        raise DatasetError(f"the split column {column} is empty or has nulls", value=int(values.isna().sum()), fix=fix)
