"""The logical content hash of a dataset: what its rows say, whoever wrote the Parquet files.

Equal rows give equal hashes across Parquet writers and their versions, compression, row groups, dictionary encoding
and timestamp units. A value, a null, a column's name, type or place, the order of the rows inside a file and the
relative name of a file all count. Three choices:

- A NaN in a floating-point column counts as a null. pandas writes its NaN as null and reads null as NaN, so both
  can't be told apart by whoever trains on the rows. All other floats count by their bits (-0.0 is not 0.0).
- A timestamp is an instant or a wall-clock time; Parquet keeps no more of a time zone, so the zone's name is left out.
- Integer and float widths count (int32 is not int64); 64-bit offsets, fixed lengths and categories don't.

Of files that rows name, below `files/`, the relative name and the bytes count. A dataset without any has the hash that
it had before there were such files.

The hash of bytes (DVC's) is integrity; this one is identity. Measured: 300,000 rows of 51
columns in 0.65 s of CPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.tree import FILES, tree_files, tree_hashes
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.spec.frozen import Frozen

if TYPE_CHECKING:
    import pyarrow as pa

# Part of every hash: a change of the encoding below is a change of all published hashes, and must be seen as one.
FORMAT = 1
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class FileContent(Frozen):
    """One file: `name` relative to the dataset's folder, with `/`; `sha256` of its logical content.

    A file that rows name, below `files/`, has no `rows` of its own, and its content are its bytes.
    """

    name: str
    rows: int
    sha256: str


class ContentHash(Frozen):
    """A dataset's logical content; `files` in order of their names."""

    sha256: str
    rows: int
    files: tuple[FileContent, ...]


def content_hash(folder: Path) -> ContentHash:
    """The logical content of a folder of Parquet files, and of the files below `files/` in it.

    Raises DatasetError if the folder holds no Parquet file, anything else outside `files/`, or a file that can't be
    read whole.
    """
    tables = [FileContent(name=name, **file_content(path)) for name, path in parquet_files(folder).items()]
    files = tree_files(folder)
    named = zip(files, tree_hashes(files.values()), strict=True)
    return combined([*tables, *(FileContent(name=name, rows=0, sha256=sha256) for name, sha256 in named)])


def combined(files: Iterable[FileContent]) -> ContentHash:
    """The dataset's hash from those of its files."""
    ordered = tuple(sorted(files, key=lambda file: file.name))
    value = {"format": FORMAT, "files": [[file.name, file.sha256] for file in ordered]}
    return ContentHash(sha256=sha256_json(value), rows=sum(file.rows for file in ordered), files=ordered)


def parquet_files(folder: Path) -> dict[str, Path]:
    """The Parquet files below a folder by relative name, in order; those below `files/` are left out.

    Raises DatasetError if there is none, or another file outside `files/`.
    """
    parts = [path for path in folder.glob("*") if path.name != FILES]
    below = (inner for path in parts if path.is_dir() for inner in path.rglob("*"))
    files = (path for path in (*parts, *below) if not path.is_dir())
    paths = {path.relative_to(folder).as_posix(): path for path in files}
    foreign = sorted(name for name in paths if not name.endswith(".parquet"))
    if foreign:
        raise DatasetError(
            f"{folder.name} holds files that are not Parquet",
            value=foreign[:5],
            fix=f"write only *.parquet files there, and files that rows name below {FILES}/",
            code="dataset.foreign_file",
        )
    if not paths:
        fix = "build the dataset first"
        raise DatasetError("the folder holds no Parquet file", value=str(folder), fix=fix, code="dataset.no_parquet")
    return dict(sorted(paths.items()))


def all_files(folder: Path) -> dict[str, Path]:
    """The Parquet files of a dataset's folder and the files below `files/`, by relative name."""
    return parquet_files(folder) | tree_files(folder)


def file_content(path: Path) -> dict[str, Any]:
    """`rows` and logical `sha256` of one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # page_checksum_verification finds a flipped byte where the writer stored checksums.
        file = pq.ParquetFile(path, page_checksum_verification=True)
        # Column by column: a file of ten million rows is never held whole.
        names = file.schema_arrow.names
        columns = [[name, *_column(file.read(columns=[name]).column(name))] for name in names]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DatasetError(
            f"{path.name} can't be read as Parquet: {error}",
            value=str(path),
            fix="remove the file and fetch it again",
            code="dataset.unreadable_file",
        ) from error
    except NotImplementedError as error:
        raise DatasetError(
            f"{path.name} has {error}",
            value=str(path),
            fix="write numbers, text, booleans, dates or times",
            code="dataset.column_type",
        ) from error
    rows = file.metadata.num_rows
    return {"rows": rows, "sha256": sha256_json({"rows": rows, "columns": columns})}


def _column(column: pa.ChunkedArray) -> tuple[str, str]:
    """Logical type and sha256 of a column's values, independent of how they are cut into chunks."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    logical_type, parts = _encoded(column)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return logical_type, digest.hexdigest()


def _encoded(column: pa.ChunkedArray) -> tuple[str, list[Any]]:
    """Logical type and the buffers that hold validity and values; a null's value is always zero or empty."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return str(kind), _float_parts(column)
    if types.is_integer(kind):
        return str(kind), _integer_parts(column)
    if types.is_boolean(kind):
        return "bool", _integer_parts(column.cast(pa.uint8()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string", _bytes_parts(column)
    if types.is_timestamp(kind):
        return ("instant" if kind.tz else "wall_clock"), _ticks_parts(column)
    if types.is_duration(kind):
        return "duration", _ticks_parts(column)
    if types.is_date(kind):
        return "date", _integer_parts(column.cast(pa.date32()).cast(pa.int32()))
    if types.is_time(kind):
        return "time", _integer_parts(column.cast(pa.time64("ns")).cast(pa.int64()))
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})", _bytes_parts(column.cast(pa.string()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "binary", _bytes_parts(column)
    if types.is_null(kind):
        return "null", []
    raise NotImplementedError(f"a column of type {kind}, which has no content hash")


def _validity(valid: Any) -> bytes:
    import numpy as np

    return np.packbits(valid).tobytes()


def _float_parts(column: pa.ChunkedArray) -> list[Any]:
    import numpy as np

    values = column.to_numpy()  # nulls become NaN
    valid = ~np.isnan(values)
    return [_validity(valid), _little_endian(np.where(valid, values, values.dtype.type(0)))]


def _integer_parts(column: pa.ChunkedArray) -> list[Any]:
    return [_validity(column.is_valid().to_numpy()), _little_endian(column.fill_null(0).to_numpy())]


def _ticks_parts(column: pa.ChunkedArray) -> list[Any]:
    """Whole seconds and the nanoseconds beyond them: equal for every unit, and no date overflows."""
    import pyarrow as pa

    per_second = _TICKS_PER_SECOND[column.type.unit]
    ticks = column.cast(pa.int64())
    values = ticks.fill_null(0).to_numpy()
    nanoseconds = values % per_second * (10**9 // per_second)
    valid = _validity(ticks.is_valid().to_numpy())
    return [valid, _little_endian(values // per_second), _little_endian(nanoseconds)]


def _bytes_parts(column: pa.ChunkedArray) -> list[Any]:
    """Validity, lengths and the concatenated bytes."""
    import numpy as np
    import pyarrow as pa

    filled = column.cast(pa.large_binary()).fill_null(b"")
    array = pa.concat_arrays(filled.chunks) if filled.num_chunks else pa.array([], pa.large_binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype="<i8")[array.offset : array.offset + len(array) + 1] if offsets else []
    text = memoryview(data)[ends[0] : ends[-1]] if data is not None and len(ends) else b""
    return [_validity(column.is_valid().to_numpy()), np.diff(ends).tobytes(), text]


def _little_endian(values: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).data
