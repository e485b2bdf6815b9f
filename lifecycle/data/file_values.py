"""Columns of files in the worker: absolute Paths, as objects. That is how whoever gets rows tells them from texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.contract.file_column import outside
from lifecycle.errors import DatasetError

if TYPE_CHECKING:
    import pandas as pd


def with_paths(frame: pd.DataFrame, columns: Iterable[str], root: Path) -> pd.DataFrame:
    """The rows with absolute Paths below `root` in these columns; a null stays None.

    Raises DatasetError for a value that leads out of the folder of files.
    """
    import pandas as pd

    def path(name: str, value: object) -> Path | None:
        if pd.isna(value):
            return None
        if why := outside(str(value)):
            fix = "materialize the snapshot again"
            raise DatasetError(f"{name} names a file outside the dataset's folder: {why}", value=value, fix=fix)
        return root / str(value)

    made = {
        name: pd.Series([path(name, value) for value in frame[name]], index=frame.index, dtype=object)
        for name in columns
    }
    return frame.assign(**made) if made else frame


def is_file_column(values: pd.Series) -> bool:
    """True for a column of files in the worker: objects, and every value but nulls is a Path."""
    if values.dtype != object:
        return False
    known = values.dropna()
    return len(known) > 0 and all(isinstance(value, Path) for value in known)


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with paths as texts, which Parquet and JSON can hold."""
    columns = [name for name in frame if is_file_column(frame[name])]
    return frame.assign(**{name: frame[name].map(str, na_action="ignore").astype("str") for name in columns})
