"""Splits by group: whole groups lie in one split each, by a salted hash of the group's value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.split.hashing import deciding_hashes, split_of_hash
from trainworthy.lifecycle.spec.split import SPLITS, GroupSplit

if TYPE_CHECKING:
    import pandas as pd


def split_by_group(rows: pd.DataFrame, spec: GroupSplit) -> dict[str, pd.DataFrame]:
    """Rows of each split. The shares are of the groups: groups of many rows make the rows' shares differ."""
    split = split_of_hash(deciding_hashes(rows, (spec.group,), spec.salt), spec.shares)
    return {name: rows[split == name] for name in SPLITS}
