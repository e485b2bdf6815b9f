"""Rows of a Parquet file as a frame whose columns lie on the disk, for rows that need not fit into memory together.

Columns of numbers, times and texts are written once, uncompressed, and mapped into memory: the kernel reads the pages
of the rows that are asked for, and takes them back when memory is short. The frame has the values and types that pandas
gives the same file; rows are taken by number, in any order. The files have no name from their first byte on, so that
nothing is left behind however the process ends. Columns of other types are held in memory.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as arrow
    from pyarrow import parquet

# In the paths of mapped files, by which a process's memory can be told from them.
MAPPED = "mapped-rows-"
# Rows that are in memory at a time while they are written.
BATCH_ROWS = 131_072
# Where a column begins in the file that all of one size share.
_ALIGNED = 64


def mapped_frame(path: Path, columns: Sequence[str], folder: Path, chosen: np.ndarray | None = None) -> pd.DataFrame:
    """These columns of the Parquet file, mapped from files in `folder`; only the rows `chosen`, numbers that ascend.

    Raises OSError with an errno if the folder's disk does not take them.
    """
    import pandas as pd
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetFile(path) as file, _File(folder) as fixed:
        rows = file.metadata.num_rows if chosen is None else len(chosen)
        kinds = {name: file.schema_arrow.field(name).type for name in columns}
        written = {
            name: _written(_dtype(file, name), kind, rows, fixed, folder) for name, kind in kinds.items()
        }  # fmt: skip
        for batch in _batches(file, columns, chosen):
            for name, column in written.items():
                column.add(batch.column(name))
        values = fixed.mapped()
        return pd.DataFrame({name: column.series(values) for name, column in written.items()}, copy=False)


def mapped_bytes() -> int:
    """Bytes of mapped columns that are in this process's resident memory now; the kernel may take them back.

    0 where the system does not say which pages are whose.
    """
    import psutil

    maps = getattr(psutil.Process(), "memory_maps", None)
    return 0 if maps is None else sum(mapping.rss for mapping in maps() if MAPPED in mapping.path)


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


def _written(dtype: Any, kind: arrow.DataType, rows: int, fixed: _File, folder: Path) -> _Fixed | _Text | _Held:
    import numpy as np
    import pandas as pd

    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return _Text(_Values(fixed, np.dtype(np.int64), rows + 1), folder)
    if isinstance(dtype, np.dtype) and dtype.kind in "iufbM":
        return _Fixed(_Values(fixed, dtype, rows))
    return _Held(kind, dtype)


class _File:
    """A file without a name in the folder, on which a process holds a descriptor as long as it is mapped.

    A file server keeps it under a name of its own until then.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / f"{MAPPED}{uuid.uuid4().hex}"
        self._file: IO[bytes] = path.open("w+b", buffering=0)
        path.unlink()
        # Bytes that were written, or are kept for what comes.
        self.size = 0

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def reserve(self, size: int) -> int:
        """Where so many bytes will begin, behind all that were reserved before."""
        begin = -(-self.size // _ALIGNED) * _ALIGNED
        self.size = begin + size
        return begin

    def write(self, content: memoryview, at: int) -> None:
        """All of the content, from this byte on."""
        while content:
            done = os.pwrite(self._file.fileno(), content, at)
            content, at = content[done:], at + done
        self.size = max(self.size, at)

    def mapped(self) -> np.ndarray:
        """The bytes, read-only."""
        import numpy as np

        if not self.size:
            # An empty file cannot be mapped.
            return np.empty(0, np.uint8)
        os.truncate(self._file.fileno(), self.size)
        return np.memmap(self._file, dtype=np.uint8, mode="r", shape=(self.size,)).view(np.ndarray)


class _Values:
    """So many values of one size in the file that all such columns share: a descriptor each would be too many."""

    def __init__(self, file: _File, dtype: np.dtype[Any], count: int) -> None:
        self._file, self.dtype, self._count = file, dtype, count
        self._begin = file.reserve(count * dtype.itemsize)
        self._done = 0

    def add(self, values: np.ndarray) -> None:
        """The next values."""
        content = values.astype(self.dtype, copy=False).tobytes()
        self._file.write(memoryview(content), self._begin + self._done)
        self._done += len(content)

    def of(self, mapped: np.ndarray) -> np.ndarray:
        """Those of the mapped file, (count,)."""
        return mapped[self._begin : self._begin + self._count * self.dtype.itemsize].view(self.dtype)


class _Fixed:
    """A column whose values have one size."""

    def __init__(self, values: _Values) -> None:
        self._values = values

    def add(self, values: arrow.Array) -> None:
        self._values.add(values.to_numpy(zero_copy_only=False))

    def series(self, mapped: np.ndarray) -> pd.Series:
        import pandas as pd

        return pd.Series(self._values.of(mapped), copy=False)


class _Text:
    """A column of texts: where each begins, and all of them one after the other in a file of its own."""

    def __init__(self, offsets: _Values, folder: Path) -> None:
        import numpy as np

        self._offsets, self._text = offsets, _File(folder)
        self._rows = self._bytes = 0
        self._valid: list[np.ndarray] = []
        offsets.add(np.zeros(1, np.int64))

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
        self._offsets.add(self._bytes + places[1:] - places[0])
        if places[-1] > places[0]:
            self._text.write(memoryview(text)[places[0] : places[-1]], self._bytes)
        self._bytes += int(places[-1] - places[0])
        self._rows += len(values)

    def series(self, mapped: np.ndarray) -> pd.Series:
        import numpy as np
        import pyarrow as arrow

        valid = np.concatenate(self._valid) if self._valid else np.ones(0, bool)
        bits = None if valid.all() else arrow.py_buffer(np.packbits(valid, bitorder="little"))
        with self._text as text:
            buffers = [bits, arrow.py_buffer(self._offsets.of(mapped)), arrow.py_buffer(text.mapped())]
        column = arrow.Array.from_buffers(arrow.large_string(), self._rows, buffers)
        return arrow.chunked_array([column]).to_pandas()


class _Held:
    """A column of another type, as pandas has it."""

    def __init__(self, kind: arrow.DataType, dtype: Any) -> None:
        self._kind, self._dtype, self._parts = kind, dtype, list[Any]()

    def add(self, values: arrow.Array) -> None:
        self._parts.append(values)

    def series(self, mapped: np.ndarray) -> pd.Series:
        import pyarrow as arrow
        from pandas.api.types import is_object_dtype

        column = arrow.chunked_array(self._parts, type=self._kind).to_pandas()
        # Of the whole column, too: those that were chosen may have no null.
        return column.astype(object) if is_object_dtype(self._dtype) else column
