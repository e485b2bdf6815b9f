"""A few rows of a folder of Parquet files, evenly spread, without reading all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.data.content import parquet_files

if TYPE_CHECKING:
    import pandas as pd

# Row groups that are looked into: one is held at a time.
MOST_GROUPS = 16


def few_rows(folder: Path, most_rows: int) -> pd.DataFrame:
    """About `most_rows` rows of all columns. Raises DatasetError for a folder without Parquet files."""
    import numpy as np
    import pandas as pd
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(path) for path in parquet_files(folder).values()]
    groups = [(file, place) for file in files for place in range(file.num_row_groups)]
    if not groups:
        return pd.concat([file.read().to_pandas() for file in files], ignore_index=True)
    chosen = [groups[place] for place in _spread(len(groups), MOST_GROUPS)]
    each = -(-most_rows // len(chosen))
    parts = []
    for file, place in chosen:
        table = file.read_row_group(place)
        parts.append(table.take(np.array(_spread(table.num_rows, each), dtype="int64")).to_pandas())
    return pd.concat(parts, ignore_index=True)


def _spread(count: int, most: int) -> list[int]:
    """At most `most` places of `count`, evenly spread."""
    return [place * count // min(count, most) for place in range(min(count, most))]
