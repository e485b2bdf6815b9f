"""Rows of a snapshot's split, with only the columns that a job names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.mapped import mapped_frame
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.values import with_paths
from trainworthy.lifecycle.protocol.jobs import Rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def read_rows(
    path: str, rows: Rows, extra: tuple[str, ...] = (), limit: int | None = None, *, mapped_in: Path | None = None,
    chosen: np.ndarray | None = None,
) -> pd.DataFrame:  # fmt: skip
    """The split at `path`, or its first `limit` rows: features, label, group, keys and `extra`, each once.

    Raises DatasetError.

    With `mapped_in` columns lie on that folder's disk (mapped.py), and only the rows `chosen`, numbers that ascend, are
    there; all of them without it. Columns of files (`rows.files`) hold absolute Paths: so to_tensors and baselines tell
    them from texts.
    """
    import pandas as pd
    import pyarrow.parquet as parquet

    label_file = () if rows.label_file is None else (rows.label_file,)
    columns = list(dict.fromkeys((*rows.features, rows.label, *label_file, rows.group, *rows.keys, *extra)))
    if not Path(path).is_file():
        raise DatasetError("the split's file is missing", value=str(path), fix="materialize the snapshot again")
    try:
        missing = sorted(set(columns) - set(parquet.read_schema(path).names))
        if missing:
            fix = "use a dataset version that has them, or leave them out of the features"
            raise DatasetError(f"the rows lack columns: {', '.join(missing)}", value=str(path), fix=fix)
        if mapped_in is not None:
            frame = mapped_frame(Path(path), columns, mapped_in, chosen)
        else:
            frame = pd.read_parquet(path, columns=columns) if limit is None else _first(path, columns, limit)
    except (OSError, ValueError, KeyError) as error:
        if mapped_in is not None and isinstance(error, OSError) and error.errno is not None:
            # Of the disk that they are written to, most likely: what follows is the storage's (failure.py).
            raise
        fix = "materialize the snapshot again"
        raise DatasetError(f"the split's file cannot be read: {error}", value=str(path), fix=fix) from None
    return with_paths(frame, [name for name in rows.files if name in frame], Path(rows.files_root))


def _first(path: str, columns: list[str], limit: int) -> pd.DataFrame:
    """As pandas reads them, without the rest of the file."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=limit, columns=columns, use_threads=False), None)
        table = file.schema_arrow.empty_table() if batch is None else arrow.Table.from_batches([batch])
    return table.select(columns).to_pandas()
