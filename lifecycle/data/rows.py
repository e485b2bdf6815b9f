"""Rows of a snapshot's split, with only the columns that a job names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.contract.file_column import outside
from lifecycle.errors import DatasetError
from lifecycle.jobs import Rows

if TYPE_CHECKING:
    import pandas as pd


def read_rows(path: str, rows: Rows, extra: tuple[str, ...] = ()) -> pd.DataFrame:
    """The split at `path`: features, label, group, keys and `extra`, each once. Raises DatasetError.

    Columns of files (`rows.files`) hold absolute Paths: so to_tensors and baselines tell them from texts.
    """
    import pandas as pd
    import pyarrow.parquet as parquet

    columns = list(dict.fromkeys((*rows.features, rows.label, rows.group, *rows.keys, *extra)))
    if not Path(path).is_file():
        raise DatasetError("the split's file is missing", value=str(path), fix="materialize the snapshot again")
    try:
        missing = sorted(set(columns) - set(parquet.read_schema(path).names))
        if missing:
            fix = "use a dataset version that has them, or leave them out of the features"
            raise DatasetError(f"the rows lack columns: {', '.join(missing)}", value=str(path), fix=fix)
        found = pd.read_parquet(path, columns=columns)
    except (OSError, ValueError, KeyError) as error:
        fix = "materialize the snapshot again"
        raise DatasetError(f"the split's file cannot be read: {error}", value=str(path), fix=fix) from None
    return with_paths(found, [name for name in rows.files if name in found], Path(rows.files_root))


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
