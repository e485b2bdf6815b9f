"""Rows in memory as the files that every engine judges."""

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
