"""A column that names whom rows are about though its name does not say so: a patient's number, a firm, an animal.

Rows of one value are alike in most other columns, which chance does not do: neither rows drawn by chance are, nor those
of the value beside it. A measured number's neighbours are as alike as its own rows; so are a month's. A column that the
name decides, such as a patient's year of birth, brings alike rows together only while each name is among them often.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api import types

from trainworthy.lifecycle.leakage.entities import counts_things
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.pipeline.scaffold.roles import ID_NAME
from trainworthy.pipeline.scaffold.shares import LARGEST_GROUP, LEAST_GROUPS, are_groups

# A column is alike within values if its rows differ by less than this share of what rows differ by otherwise.
_DIFFERS = 0.2
# Some columns are no evidence. What follows from a number of LEAST_GROUPS values differs from one value to the next by
# 3 / LEAST_GROUPS of what drawn rows do. What numbers the rows of one, such as a period, is never equal among them,
# though drawn rows are.
_BESIDE, _MEETS = 0.1, 0.02
# More than half of the other columns, of so many at least. One that hardly differs in any rows says nothing.
_MOST, _FEWEST_OTHERS, _SAME_EVERYWHERE = 0.5, 3, 0.01
# Columns, values and pairs of rows that are looked at: 4,000 columns take seconds.
_OTHERS, _VALUES, _PAIRS, _ROWS, _RANKED = 32, 500, 1_000, 1_000, 4_096


@dataclass(frozen=True)
class Whom:
    """A column that names whom rows are about; in how many of the `others` that can tell so its rows agree."""

    name: str
    alike: int
    others: int

    def remark(self, split_by: str | None, *, has_times: bool) -> str:
        """Why it is no input, and what to do; `split_by` is the column of whole groups, None where there is none."""
        agree = f"left out: it names whom a row is about: rows of one {self.name!r} agree"
        agree += f" in {self.alike} of the {self.others} columns that can tell, and those of different ones do not"
        if split_by == self.name:
            return f"{agree}. The split goes by it (--group), so that the model meets new ones only"
        if split_by is not None:
            return f"{agree}; the split goes by {split_by!r}. If it is known when you predict, set role: feature"
        if has_times:
            return f"{agree}. To measure on new ones, keep each in one split: by: time_and_group in use_case.yaml"
        return f"{agree}, and rows of one lie in training and in the benchmark. Split by it: --group {self.name}"


def find_whom(rows: pd.DataFrame, target: str, known: Collection[str | None]) -> list[Whom]:
    """The columns of text or whole numbers that name whom rows are about, those of the fewest values first.

    `known` are columns of which the meaning is known, such as key and time; like `target` they are not looked at.
    """
    names = [str(name) for name in rows.columns if name not in known and name != target]
    candidates = [name for name in names if _may_name(rows[name])]
    if not candidates:
        return []
    others = _columns(rows, names)
    if not any(_agreeing(rows[name], name, others) for name in candidates):
        return []
    # Whole rows that come again, as copies do, are alike for every number in them.
    different = rows[~rows[[*names, target]].duplicated()]
    others = _columns(different, names)
    alike = {name for name in candidates if _agreeing(different[name], name, others)}
    finest_first = sorted((name for name in candidates if name in alike), key=lambda name: -rows[name].nunique())
    named = [str(name) for name in known if name in different.columns and _may_name(different[str(name)])]
    return _without_described(different, finest_first, names, named)


def _without_described(
    rows: pd.DataFrame, finest_first: Sequence[str], names: Sequence[str], named: Sequence[str]
) -> list[Whom]:
    """Those that do not merely describe one of finer values: without several rows of a finer one they bring no more.

    `named` are columns that are known to name something, such as a part of the key.
    """
    found: list[Whom] = []
    left = rows
    for name in named:
        left = left[~left[name].duplicated()]
    for name in finest_first:
        whom = _agreeing(left[name], name, _columns(left, names))
        if whom is not None:
            found.insert(0, whom)
            left = left[~left[name].duplicated()]
        elif found and left[name].is_unique and rows[name].nunique() == rows[found[0].name].nunique():
            # Another name of the same.
            found.append(Whom(name, found[0].alike, found[0].others))
    # A number that counts nothing may be a measure of what is named: an engine's size, a city's people.
    return [whom for whom in found if _is_code(rows[whom.name])]


def _is_code(values: pd.Series) -> bool:
    """Texts, ids by their name, and numbers that count."""
    if not types.is_integer_dtype(values.dtype) or ID_NAME.search(str(values.name)):
        return True
    return counts_things(values)


def _may_name(values: pd.Series) -> bool:
    """Texts or whole numbers, each known, of many values that come again."""
    named = types.is_string_dtype(values.dtype) or types.is_integer_dtype(values.dtype)
    if not named or values.isna().any():
        return False
    some = values.iloc[evenly_spread(len(values), _ROWS)].value_counts()
    # What so few rows show already, before all are counted; a share of them may be off by half.
    if len(some) < LEAST_GROUPS / 2 or some.iloc[0] > 1.5 * LARGEST_GROUP * some.sum():
        return False
    return are_groups(values) and not is_free_text(values)


@dataclass(frozen=True)
class _Columns:
    """Columns as ranks of numbers, 0 to 1, and codes of texts, shape (rows, columns); NaN is null."""

    names: tuple[str, ...]
    values: np.ndarray
    are_codes: np.ndarray

    def differences(self, pairs: np.ndarray) -> np.ndarray:
        """How much pairs of rows differ in each column, 0 to 1: numbers by rank, else the share that is not equal."""
        if not pairs.shape[1]:
            return np.zeros(len(self.names))
        left, right = self.values[pairs[0]], self.values[pairs[1]]
        nulls, other_nulls = np.isnan(left), np.isnan(right)
        apart = np.where(self.are_codes, left != right, np.abs(left - right))
        return np.where(nulls | other_nulls, nulls != other_nulls, apart).mean(axis=0)

    def equal(self, pairs: np.ndarray) -> np.ndarray:
        """The share of the pairs of rows that are equal in each column."""
        return (self.values[pairs[0]] == self.values[pairs[1]]).mean(axis=0)


def _columns(rows: pd.DataFrame, names: Sequence[str]) -> _Columns:
    """Of many columns evenly spread ones, in a form that pairs of rows can be compared in."""
    some = tuple(names[int(place)] for place in evenly_spread(len(names), _OTHERS))
    are_numbers = [types.is_numeric_dtype(rows[name].dtype) and not types.is_bool_dtype(rows[name]) for name in some]
    values = [
        _ranks(rows[name]) if number else _codes(rows[name]) for name, number in zip(some, are_numbers, strict=True)
    ]
    return _Columns(some, np.stack(values, axis=1), ~np.array(are_numbers))


def _codes(values: pd.Series) -> np.ndarray:
    codes = pd.factorize(values)[0].astype(np.float32)
    return np.where(codes < 0, np.float32(np.nan), codes)


def _ranks(values: pd.Series) -> np.ndarray:
    """Of each number its ranks' middle, so that one of many rows is no rank at an end; by a sample of the rows."""
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    sample = np.sort(numbers[evenly_spread(len(numbers), _RANKED)])
    edges = sample[~np.isnan(sample)]
    low, high = (np.searchsorted(edges, numbers, side=side) for side in ("left", "right"))
    ranks = ((low + high) / (2 * max(len(edges), 1))).astype(np.float32)
    return np.where(np.isnan(numbers), np.float32(np.nan), ranks)


def _agreeing(values: pd.Series, name: str, columns: _Columns) -> Whom | None:
    """The column as a name, if rows of one value are alike in most other columns; None if it is none."""
    pairs = _pairs_of(values)
    if pairs is None:
        return None
    within, beside, drawn = (columns.differences(some) for some in pairs)
    equal, equal_drawn = (columns.equal(some) for some in (pairs[0], pairs[2]))
    alike = within < _DIFFERS * drawn
    numbers_them = (equal_drawn >= _MEETS) & (equal < _DIFFERS * equal_drawn)
    follows = alike & (beside < _BESIDE * drawn)
    told = (drawn >= _SAME_EVERYWHERE) & ~numbers_them & ~follows & (np.array(columns.names) != name)
    alike &= told & (within < _DIFFERS * beside)
    if told.sum() < _FEWEST_OTHERS or alike.sum() <= _MOST * told.sum():
        return None
    return Whom(name, int(alike.sum()), int(told.sum()))


def _pairs_of(values: pd.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Pairs of rows of one value, of one and the value beside it, and drawn; None where too few values come again."""
    sizes = values.value_counts(sort=False)
    again = np.sort(sizes.index[sizes > 1].to_numpy())
    if len(again) < LEAST_GROUPS:
        return None
    starts = evenly_spread(len(again) - 1, _VALUES)
    chosen = again[np.union1d(starts, starts + 1)]
    rows = np.flatnonzero(values.isin(chosen).to_numpy())
    codes = pd.factorize(values.iloc[rows], sort=True)[0]
    order = np.argsort(codes, kind="stable")
    rows, codes = rows[order], codes[order]
    same = codes[1:] == codes[:-1]
    pairs = np.stack([rows[:-1], rows[1:]])
    drawn = np.stack([rows, np.random.default_rng(0).permutation(rows)])
    return _some(pairs[:, same]), _some(pairs[:, ~same]), _some(drawn)


def _some(pairs: np.ndarray) -> np.ndarray:
    return pairs[:, evenly_spread(pairs.shape[1], _PAIRS)]
