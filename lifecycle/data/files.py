"""Rows of a folder of Parquet files, and of a snapshot's splits while they are written: only the columns asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.batches import BATCH_ROWS
from trainworthy.lifecycle.contract.table import table_of
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import parquet_files

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa


def read_columns(folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """These columns (None: all) of a folder of Parquet files, file after file by name; the index counts the rows.

    A column that the files hold as several types has their common one.
    Raises DatasetError for a folder without files, a file that can't be read, or a column that is missing.
    """
    import pandas as pd

    names = None if columns is None else list(dict.fromkeys(columns))
    paths = list(parquet_files(folder).values())
    types, _ = _common_types(paths)
    return pd.concat([_read(path, names, types) for path in paths], ignore_index=True)


def key_hashes(folder: Path, columns: Sequence[str]) -> np.ndarray:
    """Hash of these columns' values for each row of a folder of Parquet files, shape (N,), uint64."""
    import numpy as np

    from trainworthy.lifecycle.data.split.hashing import row_hashes

    return np.concatenate([row_hashes(_read(path, [*columns]), columns) for path in parquet_files(folder).values()])


def _read(path: Path, columns: list[str] | None, types: Mapping[str, pa.DataType] | None = None) -> pd.DataFrame:
    import pandas as pd
    import pyarrow.parquet as pq

    try:
        rows, held = pd.read_parquet(path, columns=columns), pq.read_schema(path)
        other = {name: kind for name, kind in (types or {}).items() if name in rows and held.field(name).type != kind}
        if not other:
            return rows
        other_columns = pq.read_table(path, columns=list(other))
        return with_columns(
            rows, {name: other_columns[name].cast(kind).to_pandas().array for name, kind in other.items()}
        )
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DatasetError:
    fix = "remove the file and fetch it again, or declare the columns that it has"
    return DatasetError(f"{path.name} can't be read: {error}", value=str(path), fix=fix)


@dataclass(frozen=True)
class SplitFiles:
    """The Parquet files of a snapshot's splits, `<split>.parquet` in one folder."""

    folder: Path

    def path(self, split: str) -> Path:
        """Where a split lies."""
        return self.folder / f"{split}.parquet"

    def read(self, split: str, columns: Sequence[str], rows: np.ndarray | None = None) -> pd.DataFrame:
        """These columns of a split; only the rows of these ascending numbers, if given, batch after batch."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        file, names = pq.ParquetFile(self.path(split)), list(dict.fromkeys(columns))
        if rows is None or len(rows) == file.metadata.num_rows:
            return file.read(columns=names).to_pandas()
        parts, first = [], 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
            here = slice(*np.searchsorted(rows, (first, first + batch.num_rows)))
            parts.append(batch.take(pa.array(rows[here] - first)))
            first += batch.num_rows
        return pa.Table.from_batches(parts).to_pandas()


def write_split_files(
    source: Path,
    folder: Path,
    positions: Mapping[str, np.ndarray],
    labels: pd.Series,
    texts: Mapping[str, Sequence[str | None]] | None = None,
) -> SplitFiles:
    """Write each split's rows of the dataset in `source`, batch after batch, with the label as a column.

    It replaces a column of its name, and has the type of `labels`, whose values are written as they are.

    Args:
        positions: row numbers of each split in the order of `read_columns`, each row in one split at most.
        labels: the label by row number, for the rows of all splits; its name is the column's.
        texts: further columns of texts, a value for each row of the dataset.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = list(parquet_files(source).values())
    label = str(labels.name)
    known = labels.to_numpy()
    kind = pa.string() if known.dtype == object else pa.from_numpy_dtype(known.dtype)
    added = {name: pa.array(values, pa.string()) for name, values in (texts or {}).items()}
    schema = _written_schema(paths, {**dict.fromkeys(added, pa.string()), label: kind})
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    split_of, values = (
        np.full(rows, -1, dtype=np.int8),
        np.full(rows, "" if known.dtype == object else 0, dtype=known.dtype),
    )
    values[labels.index] = known
    for place, chosen in enumerate(positions.values()):
        split_of[chosen] = place
    files, first = SplitFiles(folder), 0
    writers = [pq.ParquetWriter(files.path(name), schema) for name in positions]
    try:
        for batch in _batches(paths):
            here = slice(first, first := first + batch.num_rows)
            new = {name: column[here] for name, column in added.items()} | {label: pa.array(values[here], kind)}
            labelled = _with_columns(batch, new, schema)
            for place, writer in enumerate(writers):
                chosen = split_of[here] == place
                if chosen.any():
                    writer.write_table(labelled.filter(pa.array(chosen)))
    finally:
        for writer in writers:
            writer.close()
    return files


def _with_columns(batch: Any, new: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """The batch with new columns, as the schema has it."""
    import pyarrow as pa

    rows = pa.Table.from_batches([batch])
    rows = rows.select([name for name in rows.column_names if name not in new])
    for name, column in new.items():
        rows = rows.append_column(name, column)
    try:
        return rows.select(schema.names).cast(schema)
    except pa.ArrowInvalid as error:
        fix = "write every file with the same columns and types"
        raise DatasetError(f"a value does not fit the type that all files share: {error}", fix=fix) from None


def _batches(paths: Sequence[Path]) -> Any:
    import pyarrow.parquet as pq

    for path in paths:
        yield from pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS)


def _common_types(paths: Sequence[Path]) -> tuple[dict[str, pa.DataType], dict[str, str]]:
    """The type of each column over all files, and of those that have none why. One type in all files stays as it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = []
    for path in paths:
        try:
            schemas.append(pq.read_schema(path))
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None
    table, types = table_of(paths, 0, schemas), {}
    for name, kind in table.types.items():
        if name not in table.conflicts:
            held = {schema.field(name).type for schema in schemas} - {pa.null()}
            types[name] = held.pop() if len(held) == 1 else kind
    return types, table.conflicts


def _written_schema(paths: Sequence[Path], new: Mapping[str, pa.DataType]) -> pa.Schema:
    """The files' one schema with the types of new columns, each in the place of one of its name or else at the end."""
    import pyarrow as pa

    types, conflicts = _common_types(paths)
    conflicts = {name: why for name, why in conflicts.items() if name not in new}
    if conflicts:
        listed = [f"{name}: {why}" for name, why in conflicts.items()]
        fix = "write every file with the same columns and types"
        raise DatasetError("the files' columns don't fit together", value=listed[:10], fix=fix)
    return pa.schema({**types, **new})
