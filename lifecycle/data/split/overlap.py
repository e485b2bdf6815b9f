"""What two splits share that they must not: rows, keys or groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.split.hashing import row_hashes
from trainworthy.lifecycle.spec.split import GroupSplit, HashSplit, SplitSpec, StratifiedSplit, TimeAndGroupSplit

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def disjoint_columns(spec: SplitSpec, primary_key: Sequence[str]) -> tuple[str, ...]:
    """The columns whose values, taken together, lie in one split each by declaration; none where time alone parts."""
    match spec:
        case GroupSplit() | TimeAndGroupSplit():
            return (spec.group,)
        case HashSplit():
            return spec.columns or tuple(primary_key)
        case StratifiedSplit():
            return tuple(primary_key)
        case _:
            return ()


def shared_values(splits: Mapping[str, pd.DataFrame], columns: Sequence[str]) -> list[str]:
    """For each two splits that share values of these columns, how many, in words. By 64-bit hashes."""
    return shared({name: row_hashes(rows, columns) for name, rows in splits.items()}, f"values of {', '.join(columns)}")


def shared(numbers: Mapping[str, np.ndarray], what: str) -> list[str]:
    """For each two splits that share numbers, how many, in words."""
    import numpy as np
    import pandas as pd

    unique = {name: pd.unique(values) for name, values in numbers.items()}
    # Hash tables: half the time of sorting.
    if pd.Index(np.concatenate(list(unique.values()))).is_unique:
        return []
    both = {
        (before, after): int(pd.Index(unique[before]).isin(unique[after]).sum())
        for before, after in itertools.combinations(unique, 2)
    }
    return [f"{before} and {after} share {count} {what}" for (before, after), count in both.items() if count]
