"""Where each row goes: by time, by a hash or by stratum; one way in, and the check of what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.split.by_stratum import split_by_stratum
from trainworthy.lifecycle.data.split.by_time import split_by_time, split_by_time_and_group
from trainworthy.lifecycle.data.split.check import splits_check
from trainworthy.lifecycle.data.split.hashing import split_by_group, split_by_hash
from trainworthy.lifecycle.data.split.overlap import disjoint_columns
from trainworthy.lifecycle.spec.split import (
    SPLITS,
    GroupSplit,
    HashSplit,
    SplitSpec,
    StratifiedSplit,
    TimeAndGroupSplit,
    TimeSplit,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPLITS", "split_by_time", "split_columns", "split_rows", "splits_check"]


def split_columns(spec: SplitSpec, contract: Contract) -> tuple[str, ...]:
    """The columns that decide where a row goes, and its group."""
    return tuple(dict.fromkeys((*spec.columns_named().values(), *disjoint_columns(spec, contract.primary_key))))


def split_rows(rows: pd.DataFrame, spec: SplitSpec, contract: Contract) -> dict[str, pd.DataFrame]:
    """The labelled rows of each split in SPLITS, in their order; a row lies in one of them or in none.

    `rows` hold split_columns and the label. Raises DatasetError where they can't be split as declared.
    """
    match spec:
        case TimeSplit():
            return split_by_time(rows, spec)
        case TimeAndGroupSplit():
            return split_by_time_and_group(rows, spec)
        case GroupSplit():
            return split_by_group(rows, spec)
        case HashSplit():
            return split_by_hash(rows, spec, contract.primary_key)
        case StratifiedSplit():
            return split_by_stratum(rows, spec, contract.primary_key, contract.label)
        case _:
            assert_never(spec)
