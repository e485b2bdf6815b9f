"""Hashes of rows' values that are the same on every machine, in every version of the data and for every file.

A value's hash depends on the value alone: 7, 7.0 and True's 1 as the integers that they equal, a date as its midnight,
a time with a zone as its instant. So a column that a later file holds as floats, because it has gained a null
elsewhere, keeps its hashes. Integers go through the finalizer of SplitMix64 (Steele, Lea & Flood 2014), texts through
pandas' SipHash-2-4 of their UTF-8 under a fixed key. tests/lifecycle/split holds fixed vectors: changed hashes would
move rows between training and benchmark in silence.

Splits by group: whole groups lie in one split each, by a salted hash of the group's value.

Splits by hash: each row by a salted hash of its key, so that a row stays where it is as others are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import SPLITS, GroupSplit, HashSplit, Shares

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Part of what makes an assignment: change it with any change of the functions below.
HASH_VERSION = 1
_SIPHASH_KEY = "0123456789123456"
_NULL = 0x6E756C6C6E756C6C
# Splits by their place on the hash's line: the held-out ones first.
_ORDER = ("benchmark", "calibration", "validation", "training")


def split_of_hash(hashes: np.ndarray, shares: Shares) -> np.ndarray:
    """The split's name for each hash, shape (N,): each split has its share of the 64-bit line."""
    import numpy as np

    ends = np.cumsum([shares.of(name) for name in _ORDER[:-1]])
    bounds = np.array([int(end * 2.0**64) for end in ends], dtype=np.uint64)
    return np.array(_ORDER)[np.searchsorted(bounds, hashes, side="right")]


def deciding_hashes(rows: pd.DataFrame, columns: Sequence[str], salt: str) -> np.ndarray:
    """row_hashes of columns that decide where a row goes. Raises DatasetError for none, and for nulls in one."""
    if not columns:
        fix = "give contract.yaml a primaryKey, or name columns in split"
        raise DatasetError("there is no primary key by which rows could be split", fix=fix)
    for name in columns:
        refuse_nulls(rows[name])
    return row_hashes(rows, columns, salt)


def refuse_nulls(values: pd.Series) -> None:
    """Raises DatasetError if a column that decides the split has nulls."""
    nulls = int(values.isna().sum())
    if nulls:
        fix, affected = "require the column in contract.yaml, or split by another one", f"{nulls} of {len(values)} rows"
        raise DatasetError(f"the column {values.name} decides the split and has nulls", value=affected, fix=fix)


def row_hashes(rows: pd.DataFrame, columns: Sequence[str], salt: str = "") -> np.ndarray:
    """Hash of the columns' values for each row, shape (N,), uint64; a null is a value."""
    import numpy as np

    combined = np.full(len(rows), _of_texts([salt])[0], dtype=np.uint64)
    for name in columns:
        values, known = rows[name], rows[name].notna().to_numpy()
        hashes = np.full(len(rows), _NULL, dtype=np.uint64)
        hashes[known] = _value_hashes(values if known.all() else values[known])
        combined = _mixed(combined ^ hashes)
    return combined


def _value_hashes(values: pd.Series) -> np.ndarray:
    """Hashes of values without nulls; what is no number, time or text hashes as its text."""
    import numpy as np
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    kind = pd.api.types.infer_dtype(values, skipna=False)
    if kind in ("integer", "boolean"):
        return _of_integers(values.to_numpy(dtype=np.int64))
    if kind in ("floating", "mixed-integer-float"):
        return _of_floats(values.to_numpy(dtype=np.float64))
    if kind in ("date", "datetime64", "datetime"):
        return _of_integers(_microseconds(values))
    if kind == "decimal":
        return _of_texts(np.array([format(value.normalize(), "f") for value in values], dtype=object))
    # Of 10 million rows only the different texts become Python objects.
    codes, different = pd.factorize(values if kind == "string" else values.astype(str))
    return _of_texts(np.asarray(different, dtype=object))[codes]


def _of_texts(texts: Sequence[str] | np.ndarray) -> np.ndarray:
    import numpy as np
    import pandas as pd

    return pd.util.hash_array(np.asarray(texts, dtype=object), encoding="utf8", hash_key=_SIPHASH_KEY, categorize=False)


def _of_integers(values: np.ndarray) -> np.ndarray:
    import numpy as np

    return _mixed(values.astype(np.int64).view(np.uint64))


def _of_floats(values: np.ndarray) -> np.ndarray:
    """A whole number hashes as the integer that it is."""
    import numpy as np

    whole = (np.floor(values) == values) & (np.abs(values) < 2.0**63)
    return np.where(whole, _of_integers(np.where(whole, values, 0)), _mixed(values.view(np.uint64)))


def _microseconds(values: pd.Series) -> np.ndarray:
    """Since 1970; of a time with a zone, in UTC."""
    import pandas as pd

    times = pd.to_datetime(values)
    if times.dt.tz is not None:
        times = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return times.dt.as_unit("us").astype("int64").to_numpy()


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64: every bit of the input changes about half of the output's."""
    import numpy as np

    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def split_by_group(rows: pd.DataFrame, spec: GroupSplit) -> dict[str, pd.DataFrame]:
    """Rows of each split. The shares are of the groups: groups of many rows make the rows' shares differ."""
    split = split_of_hash(deciding_hashes(rows, (spec.group,), spec.salt), spec.shares)
    return {name: rows[split == name] for name in SPLITS}


def split_by_hash(rows: pd.DataFrame, spec: HashSplit, primary_key: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Rows of each split, by the hash of spec.columns, or of the primary key where none are named."""
    split = split_of_hash(deciding_hashes(rows, spec.columns or tuple(primary_key), spec.salt), spec.shares)
    return {name: rows[split == name] for name in SPLITS}
