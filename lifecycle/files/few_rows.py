"""A few rows, evenly spread over a folder of Parquet files, without reading all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.lifecycle.sampling import evenly_spread

# Row groups that are looked into: one is held at a time.
MOST_GROUPS = 16


def few_rows(folder: Path, most_rows: int) -> pd.DataFrame:
    """About `most_rows` rows of all columns. Raises DatasetError for a folder without Parquet files."""
    files = [pq.ParquetFile(path) for path in parquet_files(folder).values()]
    groups = [(file, place) for file in files for place in range(file.num_row_groups)]
    if not groups:
        return pd.concat([file.read().to_pandas() for file in files], ignore_index=True)
    chosen = [groups[place] for place in evenly_spread(len(groups), MOST_GROUPS)]
    each = -(-most_rows // len(chosen))
    parts = []
    for file, place in chosen:
        table = file.read_row_group(place)
        parts.append(table.take(evenly_spread(table.num_rows, each)).to_pandas())
    return pd.concat(parts, ignore_index=True)
