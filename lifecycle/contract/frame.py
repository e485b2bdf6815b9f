"""Rows in memory as the files that every engine judges.

The standard's logical type of a column of rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def as_files(frame: pd.DataFrame) -> Iterator[Path]:
    """A folder with the rows as one Parquet file, without their index; gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        frame.reset_index(drop=True).to_parquet(Path(folder, "rows.parquet"))
        yield Path(folder)


def logical_type(values: pd.Series) -> str:
    """The standard's logical type of a column, or pandas' name of it if there is none.

    A `date` is a day without a time of day: Python dates, or timestamps without a zone that are all at midnight.
    """
    import pandas as pd
    from pandas.api import types

    if types.is_bool_dtype(values.dtype):
        return "boolean"
    if types.is_integer_dtype(values.dtype):
        return "integer"
    if types.is_float_dtype(values.dtype):
        return "number"
    if types.is_datetime64_any_dtype(values.dtype):
        naive = getattr(values.dtype, "tz", None) is None
        return "date" if naive and bool((values.dropna().dt.normalize() == values.dropna()).all()) else "timestamp"
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    return {"datetime": "timestamp"}.get(inferred, inferred)
