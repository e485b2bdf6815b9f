"""Types of columns over several Parquet files, and one type for each in which their values can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from trainworthy.lifecycle.files.common_type import common_type


def column_types(paths: Sequence[Path]) -> dict[str, frozenset[Any]]:
    """The types that each column has in these files, in order of the first file that has it; no row is read."""
    by_column: dict[str, set[Any]] = {}
    for path in paths:
        for name, kind in pl.read_parquet_schema(path).items():
            by_column.setdefault(name, set()).add(_written(kind))
    return {name: frozenset(kinds) for name, kinds in by_column.items()}


def common_types(paths: Sequence[Path]) -> dict[str, Any]:
    """The type that holds each column's values of all these files."""
    return {name: _common(kinds) for name, kinds in column_types(paths).items()}


def cast_to(column: pl.Series, kind: Any) -> pl.Series:
    """The column as that type, a NaN as a null."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    if column.dtype != kind and isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.cast(pl.String)
    return column if column.dtype == kind else column.cast(kind, strict=False)


def type_name(kinds: frozenset[Any]) -> str:
    """As polars calls it; several where files differ."""
    return " or ".join(sorted(str(kind) for kind in kinds))


def _written(kind: Any) -> Any:
    """A category is text that is stored another way."""
    return pl.String() if isinstance(kind, pl.Categorical | pl.Enum) else kind


def _common(kinds: frozenset[Any]) -> Any:
    """Text where nothing else holds all values: an identifier that became text still finds its row."""
    some = [kind for kind in kinds if kind != pl.Null()]
    if len(some) <= 1:
        return some[0] if some else pl.Null()
    common = common_type(pl.Series([], dtype=kind).to_arrow().type for kind in some)
    if common is None:
        # Decimals and the greatest integers: near enough to be compared.
        return pl.Float64() if all(kind.is_numeric() for kind in some) else pl.String()
    return pl.Series(pa.array([], common)).dtype
