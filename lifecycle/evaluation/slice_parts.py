"""Which rows of the benchmark each slice has: those that meet a condition, those of a file, or those of a value.

Rows of the benchmark's file and its table of answers are in one order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import EvaluationError, did_you_mean
from trainworthy.lifecycle.evaluation.predicate import parse as parse_predicate
from trainworthy.lifecycle.evaluation.slices import slice_codes, slice_column
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, SliceSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True)
class SlicePart:
    """A slice by its name and its rows, `(N,)` of booleans; `unmatched` keys of its file are in no row."""

    name: str
    declared: SliceSpec
    mask: np.ndarray
    unmatched: int = 0


def columns_of_parts(benchmark: BenchmarkSpec, key: Sequence[str]) -> tuple[str, ...]:
    """Columns of the benchmark's rows that its conditions and files of rows ask for. Raises EvaluationError."""
    in_conditions = [
        name
        for slice_spec in benchmark.slices
        if slice_spec.where
        for name in parse_predicate(slice_spec.where).columns
    ]
    keyed = key if any(slice_spec.rows for slice_spec in benchmark.slices) else ()
    return tuple(dict.fromkeys((*in_conditions, *keyed)))


def slice_parts(
    benchmark: BenchmarkSpec, predictions: pd.DataFrame, rows: pd.DataFrame, folder: Path, key: Sequence[str]
) -> tuple[SlicePart, ...]:
    """The slices that are a condition or a file, and those of the columns that decide.

    `predictions` has `slice_column` of each column, `rows` has columns_of_parts; `key` names a row in the files of
    `folder`. Of a column that decides, values of too few rows are one slice together: a bound is about all of its rows.
    Raises EvaluationError for a condition, or a file, that does not fit the rows.
    """
    parts = tuple(
        part for declared in benchmark.slices for part in _parts(declared, benchmark, predictions, rows, folder, key)
    )
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        fix = "give one of them another name"
        raise EvaluationError("two slices of the benchmark have one name", value=", ".join(twice), fix=fix)
    return parts


def _parts(
    declared: SliceSpec,
    benchmark: BenchmarkSpec,
    predictions: pd.DataFrame,
    rows: pd.DataFrame,
    folder: Path,
    key: Sequence[str],
) -> Iterator[SlicePart]:
    if declared.where is not None:
        yield SlicePart(declared.title, declared, parse_predicate(declared.where).mask(rows))
    elif declared.rows is not None:
        yield SlicePart(declared.title, declared, *_named_rows(folder / declared.rows, rows, key))
    elif declared.column is not None and declared.decides:
        yield from _values(declared, predictions[slice_column(declared.column)], benchmark.slice_rows)


def _values(declared: SliceSpec, values: pd.Series, least_rows: int) -> Iterator[SlicePart]:
    import numpy as np

    codes, names = slice_codes(values.rename(declared.column))
    large = np.bincount(codes, minlength=len(names)) >= max(least_rows, FEWEST_ROWS)
    for code in np.flatnonzero(large):
        yield SlicePart(names[code], declared, codes == code)
    small = ~large[codes]
    if small.any():
        alone = np.unique(codes[small])
        # Fewer rows are too near to a single one to be named.
        named = len(alone) == 1 and int(small.sum()) >= FEWEST_ROWS
        yield SlicePart(names[alone[0]] if named else f"{declared.column}: small values", declared, small)


def _named_rows(path: Path, rows: pd.DataFrame, key: Sequence[str]) -> tuple[np.ndarray, int]:
    """The rows whose primary key the file names, and how many of its keys are none of theirs."""
    import pandas as pd

    if not key:
        fix = "mark the columns that name a row with primaryKey: true in contract.yaml, or use where"
        raise EvaluationError("a slice of a file needs a primary key, and there is none", value=path.name, fix=fix)
    try:
        named = pd.read_csv(path, dtype="str", keep_default_na=False)
    except (OSError, ValueError, pd.errors.ParserError) as error:
        fix = f"write a CSV file with the columns {', '.join(key)}"
        raise EvaluationError(f"the file of a slice cannot be read: {error}", value=path.name, fix=fix) from None
    missing = [name for name in key if name not in named.columns]
    if missing:
        fix = f"write a header with {', '.join(key)}: {did_you_mean(missing[0], list(named.columns))}"
        problem = f"the file of a slice lacks the primary key's {', '.join(missing)}"
        raise EvaluationError(problem, value=path.name, fix=fix)
    keys = pd.DataFrame({name: _typed(named[name], rows[name], path) for name in key}).drop_duplicates()
    mask = pd.MultiIndex.from_frame(rows[[*key]]).isin(pd.MultiIndex.from_frame(keys))
    return mask, len(keys) - len(rows.loc[mask, [*key]].drop_duplicates())


def _typed(texts: pd.Series, like: pd.Series, path: Path) -> pd.Series:
    """Texts of a file as the benchmark's column has its values. Raises EvaluationError for one that it cannot hold."""
    try:
        values = _as_column(texts, like)
    except (ValueError, TypeError, OverflowError):
        values = None
    if values is None or values.isna().any():
        line = next((line for line, text in enumerate(texts, start=2) if not _fits(text, like)), 2)
        # The value itself may be one that is told nobody.
        problem = f"line {line} of a slice's file has no value that {like.name} could have"
        fix = f"write values of {like.name} as the dataset has them"
        raise EvaluationError(problem, value=path.name, fix=fix)
    return values


def _fits(text: str, like: pd.Series) -> bool:
    import pandas as pd

    try:
        return bool(_as_column(pd.Series([text]), like).notna().all())
    except (ValueError, TypeError, OverflowError):
        return False


def _as_column(texts: pd.Series, like: pd.Series) -> pd.Series:
    """Values in the column's type; NaN for a number that the type would change."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(like.dtype):
        zone = getattr(like.dtype, "tz", None)
        return pd.to_datetime(texts, utc=zone is not None, format="ISO8601").astype(like.dtype)
    if pd.api.types.is_numeric_dtype(like.dtype):
        numbers = pd.to_numeric(texts)
        converted = numbers.astype(like.dtype)
        return converted.where(converted.astype("object") == numbers.astype("object"))
    first = like.dropna()
    if len(first) and type(first.iloc[0]).__name__ == "date":
        return pd.to_datetime(texts, format="ISO8601").dt.date.astype("object")
    return texts.astype(like.dtype)
