"""One type for a column that several Parquet files hold: the rules, the snapshot and the differences share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without what says nothing of the values: width of integers, categories, a zone's name."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_integer(kind):
        return pa.uint64() if kind == pa.uint64() else pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_timestamp(kind):
        # Parquet has no seconds.
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, "UTC" if kind.tz else None)
    return pa.date32() if types.is_date(kind) else kind


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The plain type that holds all: integers beside floats are floats. None if there is none."""
    import pyarrow as pa

    kinds = {plain for kind in types if not pa.types.is_null(plain := plain_type(kind))}
    if len(kinds) <= 1:
        return next(iter(kinds), pa.null())
    if all(pa.types.is_floating(kind) or kind == pa.int64() for kind in kinds):
        return pa.float64()
    timestamps = all(pa.types.is_timestamp(kind) for kind in kinds)
    if timestamps and len({kind.tz for kind in kinds}) == 1:
        units = {kind.unit for kind in kinds}
        return pa.timestamp(next(unit for unit in ("ns", "us", "ms") if unit in units), next(iter(kinds)).tz)
    return None
