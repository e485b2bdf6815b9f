"""Rows of a folder of Parquet files, and of a snapshot's splits while they are written: only the columns asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.data.content import parquet_files
from lifecycle.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Rows that are held at once: 66 columns of them take about 70 MB. Twice as many save no CPU.
BATCH_ROWS = 131_072


def read_columns(folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """These columns (None: all) of a folder of Parquet files, file after file by name; the index counts the rows.

    Raises DatasetError for a folder without files, a file that can't be read, or a column that is missing.
    """
    import pandas as pd

    wanted = None if columns is None else list(dict.fromkeys(columns))
    return pd.concat([_read(path, wanted) for path in parquet_files(folder).values()], ignore_index=True)


def key_hashes(folder: Path, columns: Sequence[str]) -> np.ndarray:
    """Hash of these columns' values for each row of a folder of Parquet files, shape (N,), uint64."""
    import numpy as np

    from lifecycle.data.split.hashing import row_hashes

    return np.concatenate([row_hashes(_read(path, [*columns]), columns) for path in parquet_files(folder).values()])


def _read(path: Path, columns: list[str] | None) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path, columns=columns)
    except (OSError, ValueError, KeyError) as error:
        fix = "remove the file and fetch it again, or declare the columns that it has"
        raise DatasetError(f"{path.name} can't be read: {error}", value=str(path), fix=fix) from None


@dataclass(frozen=True)
class SplitFiles:
    """The Parquet files of a snapshot's splits, `<split>.parquet` in one folder."""

    folder: Path

    def path(self, split: str) -> Path:
        """Where a split lies."""
        return self.folder / f"{split}.parquet"

    def read(self, split: str, columns: Sequence[str], most_rows: int | None = None) -> pd.DataFrame:
        """These columns of a split; of a larger one whole row groups, evenly spread, of about `most_rows` rows."""
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path(split))
        groups = list(range(file.num_row_groups))
        if most_rows is not None and file.metadata.num_rows > most_rows:
            share = most_rows / file.metadata.num_rows
            count = max(1, round(share * len(groups)))
            groups = [groups[int((place + 0.5) * len(groups) / count)] for place in range(count)]
        return file.read_row_groups(groups, columns=list(dict.fromkeys(columns))).to_pandas()


def write_split_files(source: Path, folder: Path, positions: Mapping[str, np.ndarray], labels: pd.Series) -> SplitFiles:
    """Write each split's rows of the dataset in `source`, batch after batch, with the label as an int8 column.

    Args:
        positions: row numbers of each split in the order of `read_columns`, each row in one split at most.
        labels: the label by row number, for the rows of all splits; its name is the column's.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = list(parquet_files(source).values())
    label = str(labels.name)
    schema = _common_schema(paths, label)
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    split_of, values = np.full(rows, -1, dtype=np.int8), np.zeros(rows, dtype=np.int8)
    values[labels.index] = labels
    for place, chosen in enumerate(positions.values()):
        split_of[chosen] = place
    files, first = SplitFiles(folder), 0
    writers = [pq.ParquetWriter(files.path(name), schema) for name in positions]
    try:
        for batch in _batches(paths):
            here = slice(first, first := first + batch.num_rows)
            labelled = pa.Table.from_batches([batch]).append_column(label, pa.array(values[here], pa.int8()))
            for place, writer in enumerate(writers):
                chosen = split_of[here] == place
                if chosen.any():
                    writer.write_table(labelled.filter(pa.array(chosen)).select(schema.names).cast(schema))
    finally:
        for writer in writers:
            writer.close()
    return files


def _batches(paths: Sequence[Path]) -> Any:
    import pyarrow.parquet as pq

    for path in paths:
        yield from pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS)


def _common_schema(paths: Sequence[Path], label: str) -> Any:
    """The files' one schema, int8 `label` added; an integer column that another file holds as floats is float."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(path) for path in paths]
    try:
        common = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        fix, folder = "write every file with the same columns and types", paths[0].parent.name
        raise DatasetError(f"the files' columns don't fit together: {error}", value=folder, fix=fix) from None
    lacking = [path.name for path, schema in zip(paths, schemas, strict=True) if set(schema.names) != set(common.names)]
    if lacking:
        fix = "write every file with the same columns and types"
        raise DatasetError("these files lack columns that others have", value=lacking[:10], fix=fix)
    return common.append(pa.field(label, pa.int8())).remove_metadata()
