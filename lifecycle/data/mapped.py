"""Rows of a Parquet file as a frame whose columns lie on the disk, for rows that need not fit into memory together.

Each column of numbers, times or texts is written once, uncompressed, to a file and mapped into memory: the kernel reads
the pages of the rows that are asked for, and takes them back when memory is short. The frame has the values and types
that pandas gives the same file; rows are taken by number, in any order. A file is unlinked as soon as it is mapped, so
that nothing is left behind however the process ends. Columns of other types are held in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as arrow
    from pyarrow import parquet

# In the names of mapped files, by which a process's memory can be told from them.
MAPPED = "mapped-rows-"
# Rows that are in memory at a time while they are written.
BATCH_ROWS = 131_072


def mapped_frame(path: Path, columns: Sequence[str], folder: Path, chosen: np.ndarray | None = None) -> pd.DataFrame:
    """These columns of the Parquet file, mapped from files in `folder`; only the rows `chosen`, numbers that ascend.

    Raises OSError if the folder's disk is full.
    """
    import pandas as pd
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetFile(path) as file, ExitStack() as stack:
        files = stack.enter_context(tempfile.TemporaryDirectory(prefix=MAPPED, dir=folder))
        kinds = {name: file.schema_arrow.field(name).type for name in columns}
        written = {
            name: _written(_dtype(file, name), kind, stack, Path(files) / str(at))
            for at, (name, kind) in enumerate(kinds.items())
        }
        for batch in _batches(file, columns, chosen):
            for name, column in written.items():
                column.add(batch.column(name))
        return pd.DataFrame({name: column.mapped() for name, column in written.items()}, copy=False)


def mapped_bytes() -> int:
    """Bytes of mapped columns that are in this process's resident memory now; the kernel may take them back."""
    import psutil

    return sum(one.rss for one in psutil.Process().memory_maps() if MAPPED in one.path)


def _batches(
    file: parquet.ParquetFile, columns: Sequence[str], chosen: np.ndarray | None
) -> Iterator[arrow.RecordBatch]:
    import numpy as np
    import pyarrow as arrow

    first = 0
    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
        if chosen is not None:
            begin, end = np.searchsorted(chosen, (first, first + len(batch)))
            first += len(batch)
            batch = batch.take(arrow.array(chosen[begin:end] - (first - len(batch))))
        yield batch


def _dtype(file: parquet.ParquetFile, name: str) -> Any:
    """The type that pandas gives the whole column: integers with a null are floats to it, for example."""
    import pyarrow as arrow

    schema = arrow.schema([file.schema_arrow.field(name)], metadata=file.schema_arrow.metadata)
    (field,) = schema
    like = arrow.nulls(1, field.type) if _has_nulls(file, name) else arrow.array([], field.type)
    return arrow.table([like], schema=schema).to_pandas(ignore_metadata=True).dtypes.iloc[0]


def _has_nulls(file: parquet.ParquetFile, name: str) -> bool:
    """By the file's statistics; where it has none, by its values."""
    at = file.schema_arrow.names.index(name)
    groups = [file.metadata.row_group(group).column(at) for group in range(file.metadata.num_row_groups)]
    if all(group.statistics is not None and group.statistics.has_null_count for group in groups):
        return any(group.statistics.null_count for group in groups)
    return any(batch.column(0).null_count for batch in file.iter_batches(BATCH_ROWS, columns=[name]))


def _written(dtype: Any, kind: arrow.DataType, stack: ExitStack, path: Path) -> _Fixed | _Text | _Held:
    import numpy as np
    import pandas as pd

    def opened(suffix: str) -> IO[bytes]:
        return stack.enter_context(path.with_suffix(suffix).open("w+b"))

    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return _Text(opened(".offsets"), opened(".text"))
    if isinstance(dtype, np.dtype) and dtype.kind in "iufbM":
        return _Fixed(dtype, opened(".values"))
    return _Held(kind, dtype)


class _Fixed:
    """A column whose values have one size."""

    def __init__(self, dtype: np.dtype[Any], file: IO[bytes]) -> None:
        self._dtype, self._file, self._rows = dtype, file, 0

    def add(self, values: arrow.Array) -> None:
        values.to_numpy(zero_copy_only=False).astype(self._dtype, copy=False).tofile(self._file)
        self._rows += len(values)

    def mapped(self) -> pd.Series:
        import pandas as pd

        return pd.Series(_map(self._file, self._dtype, self._rows), copy=False)


class _Text:
    """A column of texts: where each begins, and all of them one after the other. Of nulls a row is kept in memory."""

    def __init__(self, offsets: IO[bytes], text: IO[bytes]) -> None:
        import numpy as np

        self._offsets, self._text = offsets, text
        self._rows = self._bytes = 0
        self._valid: list[np.ndarray] = []
        np.zeros(1, np.int64).tofile(offsets)

    def add(self, values: arrow.Array) -> None:
        import numpy as np
        import pyarrow as arrow
        import pyarrow.compute as compute

        self._valid.append(values.is_valid().to_numpy(zero_copy_only=False))
        filled = compute.fill_null(values.cast(arrow.large_string()), "")
        if not len(filled):
            return
        _, offsets, text = filled.buffers()
        places = np.frombuffer(offsets, np.int64)[filled.offset : filled.offset + len(filled) + 1]
        (self._bytes + places[1:] - places[0]).tofile(self._offsets)
        if places[-1] > places[0]:
            self._text.write(memoryview(text)[places[0] : places[-1]])
        self._bytes += int(places[-1] - places[0])
        self._rows += len(values)

    def mapped(self) -> pd.Series:
        import numpy as np
        import pyarrow as arrow

        valid = np.concatenate(self._valid) if self._valid else np.ones(0, bool)
        bits = None if valid.all() else arrow.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bits, *(arrow.py_buffer(_map(file, np.dtype(kind), count)) for file, kind, count in (
            (self._offsets, "i8", self._rows + 1), (self._text, "u1", self._bytes)
        ))]  # fmt: skip
        column = arrow.Array.from_buffers(arrow.large_string(), self._rows, buffers)
        return arrow.chunked_array([column]).to_pandas()


class _Held:
    """A column of another type, as pandas has it."""

    def __init__(self, kind: arrow.DataType, dtype: Any) -> None:
        self._kind, self._dtype, self._parts = kind, dtype, list[Any]()

    def add(self, values: arrow.Array) -> None:
        self._parts.append(values)

    def mapped(self) -> pd.Series:
        import pyarrow as arrow
        from pandas.api.types import is_object_dtype

        column = arrow.chunked_array(self._parts, type=self._kind).to_pandas()
        # Of the whole column, too: those that were chosen may have no null.
        return column.astype(object) if is_object_dtype(self._dtype) else column


def _map(file: IO[bytes], dtype: np.dtype[Any], count: int) -> np.ndarray:
    """The written values, read-only."""
    import numpy as np

    file.flush()
    if not count:
        # An empty file cannot be mapped.
        return np.empty(0, dtype)
    return np.memmap(file, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)
