"""L1.4: held-out rows that come again in training since they are about the same thing: a patient's intervals.

Their labels may differ, and each row of training comes again there as well, so neither tells them from nature. Chance
does: rows of few coarse columns meet their like when one column's value is drawn from all rows' by itself, and these
would not. Under a split by chance a model is then measured on what it knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.leakage.binning import HELD_SPLITS, LabelledRows
from trainworthy.lifecycle.leakage.coincidence import EXPECTED, expected_meetings
from trainworthy.lifecycle.leakage.entities import FEW, counts_things
from trainworthy.lifecycle.protocol.leak import Leak

# Columns that tell rows apart best, of which chance is asked; and those in which hardly two things may be equal.
_COMPARED, _COARSE, _APART = 12, 4, 0.95
_FEWEST = 20
# Of the sets of equal rows so many have one value in a column that names them, and a value has two sets at most on
# average: a thing that changed once has two. Of its rows at least so many lie in a set: of a district's few do.
_ONE_VALUE, _SETS_A_VALUE, _IN_A_SET = 0.99, 2, 0.5


def about_the_same(
    rows: LabelledRows, view: tuple[np.ndarray, np.ndarray], columns: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Leak | None:
    """A warning if more than FEW of the held-out rows come again for no chance; of even rows.

    `view` has a number for each training and each held row, equal where rows are equal; `columns` the cells that it is
    made of, those that tell rows apart best first.
    """
    training, held = view
    met = np.isin(training, held)
    once = np.unique(training, return_index=True)[1]
    if not met.any() or not _are_apart([cells[once] for cells, _ in columns[:_COARSE]]):
        return None
    expected = expected_meetings([cells for cells, _ in columns[:_COMPARED]])
    copies = np.unique(training[met & (expected < EXPECTED)])
    split = rows.held_split[rows.held_even]
    again = np.isin(held, copies)
    # Of all held rows: few of a small split say nothing.
    if again.sum() < _FEWEST or again.mean() <= FEW * rows.training_share:
        return None
    shares = {name: float(again[split == name].mean()) for name in HELD_SPLITS if (split == name).any()}
    return _warning(shares, float(again.mean()), _named(rows, np.concatenate([training, held]), copies))


def _warning(shares: dict[str, float], observed: float, whom: str | None) -> Leak:
    listed = ", ".join(f"{name} {share:.2%}" for name, share in shares.items())
    same = f"the same {whom}" if whom else "the same things"
    fix = (
        f"split by it: {{by: group, group: {whom}}} under split (trainworthy new --group {whom}), and make it an entity"
        if whom
        else "give the rows a column that names what each is about (a patient, a recording), and split by it: "
        "{by: group, group: COLUMN} under split (trainworthy new --group COLUMN)"
    )
    evidence = (
        f"rows that nearly equal a training row, and would not by chance: {listed}; rows come again because they are "
        f"about {same}, and the split does not keep them together, so that all figures are those of what training knows"
    )
    return Leak(
        taxon="L1.4", family="near_duplicates", status="warning", columns=(whom,) if whom else (), observed=observed,
        threshold=FEW, evidence=evidence, fix=fix,
    )  # fmt: skip


def _are_apart(columns: Sequence[np.ndarray]) -> bool:
    """True if rows, each kind once, hardly meet in these few columns: where they do, all others may follow from them.

    A city and nine columns about it are no more than the city.
    """
    return len(np.unique(np.stack(columns, axis=1), axis=0)) >= _APART * len(columns[0])


def _named(rows: LabelledRows, sets: np.ndarray, copies: np.ndarray) -> str | None:
    """The column of text or whole numbers that has one value for each set of equal rows; None if none has."""
    both = pd.concat([rows.training[rows.training_even], rows.held[rows.held_even]], ignore_index=True)
    in_a_set = np.isin(sets, copies)
    found = {
        str(name): both.loc[in_a_set, name].nunique()
        for name in both.columns
        if _names(both[name], sets, in_a_set)
    }  # fmt: skip
    return max(found, key=lambda name: found[name]) if found else None


def _names(values: pd.Series, sets: np.ndarray, in_a_set: np.ndarray) -> bool:
    """Whether a set of equal rows has one value, a value few sets, and few of its rows lie in none."""
    if not (pd.api.types.is_string_dtype(values.dtype) or pd.api.types.is_integer_dtype(values.dtype)):
        return False
    if pd.api.types.is_integer_dtype(values.dtype) and not counts_things(values):
        return False
    mine = values[in_a_set]
    by_set = mine.groupby(sets[in_a_set])
    sizes, different = by_set.size(), by_set.nunique(dropna=False)
    named = values.isin(mine.unique())
    return bool(
        (different[sizes > 1] == 1).mean() >= _ONE_VALUE
        and mine.nunique() * _SETS_A_VALUE >= len(sizes)
        and in_a_set.sum() >= _IN_A_SET * named.sum()
    )
