"""Stratified splits: exact shares of each stratum; a hash of the key, not the order of rows, decides which rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.split.hashing import deciding_hashes
from trainworthy.lifecycle.spec.split import SPLITS, StratifiedSplit

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# As in hashing: the held-out splits come first.
_ORDER = ("benchmark", "calibration", "validation", "training")


def split_by_stratum(
    rows: pd.DataFrame, spec: StratifiedSplit, primary_key: Sequence[str], label: Label
) -> dict[str, pd.DataFrame]:
    """Rows of each split; in a stratum of n rows each has its share of n, rounded up or down to a whole row."""
    import numpy as np

    strata = stratum_codes(rows, spec, label)
    order = np.lexsort((deciding_hashes(rows, primary_key, spec.salt), strata))
    sizes = np.bincount(strata)
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ends = np.cumsum([spec.shares.of(name) for name in _ORDER[:-1]])
    bounds = np.floor(np.outer(sizes, ends) + 0.5)
    split = np.array(_ORDER)[(place[:, None] >= bounds[strata]).sum(axis=1)]
    return {name: rows[split == name] for name in SPLITS}


def stratum_codes(rows: pd.DataFrame, spec: StratifiedSplit, label: Label) -> np.ndarray:
    """The stratum of each row as a code from 0, shape (N,): by its label, or the part of it, and the spec's columns.

    A missing value of these is a value of its own.
    """
    parts = with_columns(rows[list(spec.strata)], {label.name: label.kind.strata(rows[label.name])})
    return parts.groupby([label.name, *spec.strata], sort=True, dropna=False, observed=True).ngroup().to_numpy()
