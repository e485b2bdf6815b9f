"""The columns of a table of predictions that hold a model's statistics: how they are called, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.tasks.kind import Kind

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def statistic_columns(kind: Kind, model: str) -> list[str]:
    """Columns of a table that hold a model's statistics."""
    return [column_of(model, name) for name in kind.statistic_names]


def column_of(model: str, statistic: str) -> str:
    """The column of a table that holds one statistic of a model."""
    return f"{model}:{statistic}" if statistic else model


def as_columns(kind: Kind, model: str, statistics: np.ndarray) -> dict[str, np.ndarray]:
    """A model's statistics `(N,)` or `(N, K)` as columns of a table."""
    return dict(zip(statistic_columns(kind, model), statistics.reshape(len(statistics), -1).T, strict=True))


def from_columns(kind: Kind, model: str, table: pd.DataFrame) -> np.ndarray:
    """A model's statistics, `(N,)` or `(N, K)`, from the columns of a table."""
    columns = table[statistic_columns(kind, model)].to_numpy(dtype="float64")
    return columns[:, 0] if kind.statistic_names == ("",) else columns
