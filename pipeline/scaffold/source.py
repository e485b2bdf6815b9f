"""Reads a CSV or Parquet file and finds out what type each column holds.

The types are written into the generated dataset.py (templates/dataset.py.j2), which alone turns texts into values: what
is inferred here and what is built later cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from trainworthy.lifecycle.errors import Problem
from trainworthy.pipeline.scaffold.folder import TEXTS
from trainworthy.pipeline.scaffold.reading import Reading, find_reading

Kind = Literal["integer", "number", "boolean", "text", "time", "instant"]
SUFFIXES = (".csv", ".parquet")
_DAY = r"\d{4}-\d{2}-\d{2}"
_ZONE = r"(?:Z|[+-]\d{2}:?\d{2})$"
# A number as most of Europe writes it: 12,5 or 1.234,5.
DECIMAL_COMMA = r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+"
_NUMBER = re.compile(r"[+-]?\d+")
_NO_NAME = re.compile(rf"[+-]?\d*[.,]\d+(e[+-]?\d+)?|{_DAY}.*|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}.*", re.IGNORECASE)


def read_source(path: Path, reading: Reading | None = None) -> tuple[pd.DataFrame | None, list[Problem]]:
    """The rows as the generated dataset.py reads them: of CSV all is text. None if they can't be read.

    `reading` says how a CSV file is written; None: find out.
    """
    if path.suffix not in SUFFIXES and not path.exists():
        return None, [Problem("--data", "there is no such file or folder", "correct the path", str(path))]
    if path.suffix.lower() in TEXTS:
        fix = "rename a table to .csv; put a text into a folder of its own, and name that folder"
        return None, [Problem("--data", "is neither CSV nor Parquet", fix, str(path))]
    if path.suffix not in SUFFIXES:
        return None, [Problem("--data", "is neither CSV nor Parquet", "name a .csv or .parquet file", str(path))]
    if not path.is_file():
        return None, [Problem("--data", "there is no such file", "correct the path", str(path))]
    if path.suffix == ".csv" and reading is None:
        reading, problems = find_reading(path)
        if problems:
            return None, problems
    try:
        raw = pd.read_parquet(path) if reading is None else _read_csv(path, reading, na_values=list(reading.nulls))
        # pandas gives the second of two equal names another one in silence.
        names = list(raw.columns) if reading is None else _header(path, reading)
    except (OSError, ValueError) as error:
        # Of ValueError: pandas' parser errors, texts that are not UTF-8, and pyarrow's own.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return None, [Problem("--data", f"can't be read: {reason}", "correct the file, or write it anew", str(path))]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        return None, [Problem("--data", "two columns share a name", "give each column a name of its own", twice)]
    if any(not isinstance(name, str) or not name.strip() for name in raw.columns):
        return None, [Problem("--data", "a column has no text as its name", "name every column")]
    if reading is not None and _is_row(names):
        fix = "write the columns' names into the first line"
        return None, [Problem("--data", "the first line holds values, not names of columns", fix, names[:5])]
    if raw.empty:
        return None, [Problem("--data", "holds no rows", "name a file with rows", str(path))]
    return raw, []


def _read_csv(path: Path, reading: Reading, **options: Any) -> pd.DataFrame:
    return pd.read_csv(path, dtype="str", sep=reading.separator, encoding=reading.encoding, **options)


def _header(path: Path, reading: Reading) -> list[str]:
    header = _read_csv(path, reading, header=None, nrows=1)
    return [name for name in header.iloc[0] if isinstance(name, str)]


def _is_row(names: list[str]) -> bool:
    """Whether the first line is a row: a fraction or a date is no name, and a table of years alone has no names."""
    values = [name.strip() for name in names]
    return any(_NO_NAME.fullmatch(value) for value in values) or all(_NUMBER.fullmatch(value) for value in values)


def column_kinds(raw: pd.DataFrame, dated: Collection[str] = ()) -> tuple[dict[str, Kind], list[Problem]]:
    """The type of each column, and the columns that no type fits; `dated` hold dates in a form that is known."""
    kinds: dict[str, Kind] = {}
    problems: list[Problem] = []
    for name in raw.columns:
        kind = "time" if name in dated else _kind(raw[name])
        if kind is None:
            held = str(raw[name].dropna().map(type).iloc[0].__name__)
            fix = "leave the column out, or write numbers, texts, true and false, or times"
            problems.append(Problem(f"column {name!r}", f"holds values of type {held}", fix))
        else:
            kinds[name] = kind
            if kind == "number" and (problem := _too_large(raw[name])):
                problems.append(Problem(f"column {name!r}", problem, "leave these values empty, or write others"))
    return kinds, problems


def _kind(values: pd.Series) -> Kind | None:
    known = values.dropna()
    if known.empty:
        return "number"
    if types.is_bool_dtype(values.dtype):
        return "boolean"
    if types.is_numeric_dtype(values.dtype):
        whole = types.is_integer_dtype(values.dtype) and len(known) == len(values) and known.max() < 2**63
        return "integer" if whole else "number"
    if types.is_datetime64_any_dtype(values.dtype):
        return "time" if getattr(values.dtype, "tz", None) is None else "instant"
    inferred = pd.api.types.infer_dtype(known, skipna=True)
    if inferred in ("date", "datetime"):
        return "time"
    if inferred in ("decimal", "boolean"):
        return "number" if inferred == "decimal" else "boolean"
    return _kind_of_text(known.astype("str"), len(known) == len(values)) if inferred in _TEXTS else None


_TEXTS = ("string", "categorical", "empty")


def _kind_of_text(texts: pd.Series, whole: bool) -> Kind:
    if texts.str.lower().isin(["true", "false"]).all():
        return "boolean"
    # 00501 is a name of digits, such as a postal code.
    if not texts.str.match(r"-?0\d").any():
        numbers = pd.to_numeric(texts, errors="coerce")
        if numbers.notna().all():
            return "integer" if whole and texts.str.fullmatch(r"[+-]?\d{1,18}").all() else "number"
    if texts.str.match(_DAY).all() and pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce").notna().all():
        zones = texts.str.contains(_ZONE)
        return "instant" if zones.all() else "text" if zones.any() else "time"
    return "text"


def _too_large(values: pd.Series) -> str:
    """What is wrong with numbers that float32, in which networks calculate, does not hold; empty if nothing is."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float, na_value=np.nan)
    beyond = np.abs(numbers) > np.finfo(np.float32).max
    if not beyond.any():
        return ""
    what = (
        "infinite values" if np.isinf(numbers[beyond]).all() else "values beyond ±3.4e38, more than a network can hold"
    )
    return f"holds {what}, such as {values[beyond].iloc[0]} (in {int(beyond.sum()):,} rows)"


def free_name(name: str, of: str, taken: Collection[str]) -> str:
    """A name for a column that dataset.py adds to the column `of`, which the file does not have."""
    names = (name, f"{of}_{name}", *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
    return next(candidate for candidate in names if candidate not in taken)
