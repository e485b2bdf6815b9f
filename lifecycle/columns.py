"""Columns of a table whose names are a user's: any text, `self` among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def with_columns(rows: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """A copy of the rows with these columns, in the place of those of the same name or behind the others.

    As `DataFrame.assign`, whose keywords cannot be named `self`, but that functions are not called. Values are what a
    column can be set to: an array of as many rows, a series with the rows' index, or one value for all.
    """
    changed = rows.copy(deep=False)
    for name, values in columns.items():
        changed[name] = values
    return changed
