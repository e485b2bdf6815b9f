"""Columns of files in the worker: absolute Paths, as objects. That is how whoever gets rows tells them from texts."""

from __future__ import annotations

import base64
import mimetypes
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.errors import DatasetError, EvaluationError
from trainworthy.lifecycle.files.decode import wrong_content
from trainworthy.lifecycle.files.kind import FileKind, outside

if TYPE_CHECKING:
    import pandas as pd

# Of a request; what lies in a dataset may be larger.
MOST_CONTENT = 64 * 2**20
_SEND_DATA = "send data:image/png;base64,… with the file's content"
_DATA = "data:"
_MOST_SHOWN = 60
_FIX = f"{_SEND_DATA}, or a path that can be opened here"


def with_paths(frame: pd.DataFrame, columns: Iterable[str], root: Path) -> pd.DataFrame:
    """The rows with absolute Paths below `root` in these columns; a null stays None.

    Raises DatasetError for a value that leads out of the folder of files.
    """
    import pandas as pd

    def path(name: str, value: Any) -> Path | None:
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
    return with_columns(frame, made) if made else frame


def is_file_column(values: pd.Series) -> bool:
    """True for a column of files in the worker: objects, and every value but nulls is a Path."""
    if values.dtype != object:
        return False
    known = values.dropna()
    return len(known) > 0 and all(isinstance(value, Path) for value in known)


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with paths as texts, which Parquet and JSON can hold."""
    columns = [str(name) for name in frame if is_file_column(frame[name])]
    return with_columns(frame, {name: frame[name].map(str, na_action="ignore").astype("str") for name in columns})


def of_strangers(rows: pd.DataFrame, columns: Iterable[str], folder: Path | None) -> pd.DataFrame:
    """Requests to a service: content and nulls as they are, paths only of files in `folder`, and then absolute.

    A path is taken as lying below `folder`. Raises EvaluationError for any path without a folder, and for one that
    leads out of it, by a link too.
    """
    import pandas as pd

    def allowed(name: str, value: Any) -> Any:
        if not isinstance(value, str | Path) or (isinstance(value, str) and value.startswith(_DATA)):
            return value
        if folder is None:
            raise EvaluationError(f"{name} is a path, and this service opens none", value=_short(value), fix=_SEND_DATA)
        root = folder.resolve()
        try:
            path = (root / value).resolve()
        except (OSError, ValueError):
            # Content without data: is too long a name.
            path = None
        if path is None or not path.is_relative_to(root):
            problem = f"{name} names a file outside the folder that this service reads"
            raise EvaluationError(problem, value=_short(value), fix=_SEND_DATA)
        # As text, which opened_files looks at.
        return str(path)

    made = {
        name: pd.Series([allowed(name, value) for value in rows[name]], index=rows.index, dtype=object)
        for name in columns
    }
    return with_columns(rows, made) if made else rows


@contextmanager
def opened_files(rows: pd.DataFrame, columns: Mapping[str, FileKind | None]) -> Iterator[pd.DataFrame]:
    """Requests with Paths in these columns: of a path as text, or of a `data:` URI with base64 content.

    Content lies in a temporary folder, which is gone after the block. A null stays None. Raises EvaluationError for any
    other value, a path that is no file, and content that is not base64 or that the snapshot would not let pass as a
    file of the column's kind, if that is known.
    """
    import pandas as pd

    if all(is_file_column(rows[name]) for name in columns):
        yield rows
        return
    with tempfile.TemporaryDirectory() as folder:
        made = {
            name: pd.Series(
                [
                    _opened(name, value, kind, Path(folder, f"{number}_{place}"))
                    for place, value in enumerate(rows[name])
                ],
                index=rows.index,
                dtype=object,
            )
            for number, (name, kind) in enumerate(columns.items())
        }
        yield with_columns(rows, made)


def _opened(name: str, value: Any, kind: FileKind | None, target: Path) -> Path | None:
    import pandas as pd

    if isinstance(value, str) and value.startswith(_DATA):
        return _written(name, value, kind, target)
    if isinstance(value, str | Path):
        if not _is_file(value):
            raise EvaluationError(f"{name} names no file that can be opened here", value=_short(value), fix=_FIX)
        return Path(value).absolute()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    raise EvaluationError(f"{name} is a column of files, and a value is none", value=_short(value), fix=_FIX)


def _is_file(value: str | Path) -> bool:
    try:
        return Path(value).is_file()
    except (OSError, ValueError):
        # Content without data: is too long a name.
        return False


def _short(value: object) -> str:
    """A value as an error shows it: content that was sent may be long, and says little."""
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text):,} letters)"


def _written(name: str, value: str, file: FileKind | None, target: Path) -> Path:
    """The content of a data: URI, in a file with the ending of its type."""
    head, comma, content = value[len(_DATA) :].partition(",")
    kind, *parameters = head.split(";")
    try:
        if not comma or "base64" not in parameters:
            raise ValueError("it is not data:TYPE;base64,CONTENT")
        if len(content) > 4 * MOST_CONTENT // 3 + 4:
            raise ValueError(f"it has more than {MOST_CONTENT:,} bytes")
        data = base64.b64decode(content, validate=True)
        if file is not None and (wrong := wrong_content(data, file)[0]):
            raise ValueError(wrong)
    except ValueError as error:
        raise EvaluationError(
            f"{name} holds content that can't be read: {error}", value=_short(value), fix=_FIX
        ) from None
    path = target.with_suffix(mimetypes.guess_extension(kind) or "")
    path.write_bytes(data)
    return path
