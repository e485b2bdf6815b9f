"""Splits by hash: each row by a salted hash of its key, so that a row stays where it is as others are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.split.hashing import deciding_hashes, split_of_hash
from trainworthy.lifecycle.spec.split import SPLITS, HashSplit

if TYPE_CHECKING:
    import pandas as pd


def split_by_hash(rows: pd.DataFrame, spec: HashSplit, primary_key: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Rows of each split, by the hash of spec.columns, or of the primary key where none are named."""
    split = split_of_hash(deciding_hashes(rows, spec.columns or tuple(primary_key), spec.salt), spec.shares)
    return {name: rows[split == name] for name in SPLITS}
