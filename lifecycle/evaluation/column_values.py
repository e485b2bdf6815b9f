"""A column's values as a predicate compares them: numbers, texts, booleans or times, and which of them are known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from typing import TYPE_CHECKING, Any, Literal, cast

from trainworthy.lifecycle.errors import EvaluationError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# `empty` is a column without a single known value: whatever it is compared with is unknown.
ColumnKind = Literal["number", "text", "boolean", "time", "clock", "empty"]
HOLDS = {"number": "numbers", "text": "text", "boolean": "booleans", "time": "dates or times", "clock": "times of day"}
_OF_OBJECTS: dict[str, ColumnKind] = {
    "string": "text", "boolean": "boolean", "date": "time", "datetime": "time", "datetime64": "time", "time": "clock",
    "integer": "number", "floating": "number", "mixed-integer-float": "number", "decimal": "number", "empty": "empty",
}  # fmt: skip


@dataclass(frozen=True)
class ColumnValues:
    """Values `(N,)` of one kind; where `known` is false a value means nothing. Times that have a `zone` are in UTC."""

    kind: ColumnKind
    values: Any
    known: np.ndarray
    zone: Any = None


def column_values(column: pd.Series) -> ColumnValues:
    """What a column holds. Raises EvaluationError for durations, files' bytes, lists and mixed values."""
    import numpy as np
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        column = _plain(column)
    known = column.notna().to_numpy()
    kind = _kind(column, known)
    zone = None
    if kind == "empty":
        return ColumnValues(kind, np.zeros(len(column)), known)
    if kind == "number":
        values = _numbers(column, known)
    elif kind == "boolean":
        values = np.zeros(len(column), dtype=bool)
        values[known] = column.to_numpy()[known].astype(bool)
    elif kind == "time":
        times = column if column.dtype.kind == "M" else pd.to_datetime(column)
        zone = getattr(times.dtype, "tz", None)
        values = (times if zone is None else times.dt.tz_convert("UTC").dt.tz_localize(None)).to_numpy()
    else:
        if kind == "clock" and any(time_of_day.tzinfo is not None for time_of_day in column[known]):
            raise EvaluationError(
                f"{column.name} holds times of day with a zone, which a predicate does not compare",
                value=str(column.dtype), fix="derive a column of times of day in one zone, without it",
                code="predicate.kind",
            )  # fmt: skip
        # Python's own comparisons; a missing one is compared as an empty text or midnight, and counts for nothing.
        values = column if kind == "text" else column.where(known, time()).to_numpy(dtype=object)
    return ColumnValues(kind, values, known, zone)


def literal_for(text: str, column: ColumnValues, name: str) -> Any:
    """A text's meaning beside a column of times; beside any other it is itself.

    A time without a zone is taken in the column's own. Raises EvaluationError for a text that is no ISO time, for one
    that the column's zone lacks or has twice, and for a zone beside times that have none.
    """
    import pandas as pd

    if column.kind not in ("time", "clock"):
        return text
    example = "14:30" if column.kind == "clock" else "2026-01-31 or 2026-01-31T14:30"
    try:
        read = time.fromisoformat(text) if column.kind == "clock" else datetime.fromisoformat(text)
    except ValueError:
        raise EvaluationError(
            f"{name} holds {HOLDS[column.kind]}, and this text is none", value=text, fix=f"write it as {example}",
            code="predicate.time",
        ) from None  # fmt: skip
    if column.zone is None and read.tzinfo is not None:
        raise EvaluationError(
            f"{name} holds {HOLDS[column.kind]} without a zone, and this one has a zone", value=text,
            fix="leave the zone out", code="predicate.zone",
        )  # fmt: skip
    if isinstance(read, time):
        return read
    if column.zone is None:
        return pd.Timestamp(read).to_datetime64()
    moment = _in_zone(pd.Timestamp(read), column.zone, text) if read.tzinfo is None else pd.Timestamp(read)
    return moment.tz_convert("UTC").tz_localize(None).to_datetime64()


def _in_zone(moment: pd.Timestamp, zone: Any, text: str) -> pd.Timestamp:
    """A time in the column's zone. Raises EvaluationError where clocks are set: some are there twice, some never."""
    import pandas as pd

    early, late = (moment.tz_localize(zone, ambiguous=first, nonexistent="NaT") for first in (True, False))
    if not (isinstance(early, pd.Timestamp) and isinstance(late, pd.Timestamp)):
        problem, fix = "never is, since clocks are set forward there", "write the time before or after the gap"
    elif early != late:
        problem = "is there twice, since clocks are set back there"
        fix = f"say which: {early.isoformat()} or {late.isoformat()}"
    else:
        return early
    raise EvaluationError(f"this time {problem} in {zone}", value=text, fix=fix, code="predicate.time")


def kind_of_literal(value: object) -> ColumnKind:
    """What a literal of a predicate is; a text may mean a time beside a column of times."""
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _plain(column: pd.Series) -> pd.Series:
    """A categorical column as its values."""
    import pandas as pd

    codes = cast("Any", column).cat.codes.to_numpy()
    plain_values = cast("Any", column).cat.categories.take(codes, allow_fill=True, fill_value=None)
    return pd.Series(plain_values, index=column.index, name=column.name)


def _kind(column: pd.Series, known: np.ndarray) -> ColumnKind:
    import pandas as pd

    if not known.any():
        return "empty"
    if pd.api.types.is_bool_dtype(column.dtype):
        return "boolean"
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
        return "number"
    if column.dtype.kind == "M":
        return "time"
    if isinstance(column.dtype, pd.StringDtype):
        return "text"
    held = pd.api.types.infer_dtype(column, skipna=True)
    if held not in _OF_OBJECTS:
        raise EvaluationError(
            f"{column.name} holds {held} values, which a predicate does not compare", value=str(column.dtype),
            fix="use a column of numbers, text, booleans, dates or times, derived from it where needed",
            code="predicate.kind",
        )  # fmt: skip
    return _OF_OBJECTS[held]


def _numbers(column: pd.Series, known: np.ndarray) -> np.ndarray:
    """Numbers as they are: integers stay integers, so that large ones keep their last digits."""
    import numpy as np
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        return column.to_numpy()
    if pd.api.types.is_integer_dtype(column.dtype):
        return column.to_numpy(dtype=np.uint64 if "uint" in str(column.dtype).lower() else np.int64, na_value=0)
    return column.where(known, 0).to_numpy(dtype=np.float64)
