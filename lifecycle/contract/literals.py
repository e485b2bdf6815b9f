"""The contract's values in the form of a column's values, the same for every engine.

A value that no value of the column can equal is left out: a text is no number, 2.5 no integer, and `true` is not 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from trainworthy.lifecycle.contract.rule import Rule

_TICKS_A_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_LIMITS = ("minimum", "maximum", "exclusive_minimum", "exclusive_maximum")


def values_of(rule: Rule) -> list[list[Any]]:
    """The values of the contract that a rule compares with its columns: a list a column."""
    parameters = rule.parameters
    if rule.kind == "references":
        return [[key[place] for key in parameters["keys"]] for place in range(len(rule.columns))]
    if rule.kind == "range":
        return [[parameters[name] for name in _LIMITS if name in parameters]]
    if rule.kind in ("allowed", "missing", "distribution"):
        return [list(parameters.get("values", parameters.get("edges", ())))]
    return []


def as_instant(value: Any) -> datetime | None:
    """The instant or wall-clock time that a value of the contract names; None if it names none."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def is_aware_instant(value: Any) -> bool:
    """True if the value has a time zone."""
    instant = as_instant(value)
    return instant is not None and instant.tzinfo is not None


def ticks(value: Any, kind: pa.DataType) -> Fraction:
    """The instant in ticks since 1970 of a date or timestamp type (days for a date), exactly."""
    instant = as_instant(value)
    assert instant is not None, value
    since = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    if pa.types.is_date(kind):
        return Fraction(microseconds, 86_400 * 10**6)
    return Fraction(microseconds * _TICKS_A_SECOND[kind.unit], 10**6)


def listed(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """Those of the values that a column of this type can hold, without null; instants as ticks."""
    return [value for value in (place(value, kind) for value in values) if value is not None]


def place(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of this type holds it (an instant as ticks); None if it can hold no such value."""
    types = pa.types
    if types.is_string(kind):
        return value if isinstance(value, str) else None
    if types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if types.is_timestamp(kind) or types.is_date(kind):
        return None if value is None else _integer(ticks(value, kind), -(2**63), 2**63 - 1)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    if types.is_integer(kind):
        return _integer(value, *bounds(kind))
    return _float(value, kind) if types.is_floating(kind) else None


def bounds(kind: pa.DataType) -> tuple[int, int]:
    """The least and greatest value of an integer, date or timestamp type."""
    return (0, 2**64 - 1) if kind == pa.uint64() else (-(2**63), 2**63 - 1)


def _integer(value: float | Fraction, low: int, high: int) -> int | None:
    whole = math.isfinite(value) and value == math.floor(value)
    return int(value) if whole and low <= value <= high else None


def _float(value: float, kind: pa.DataType) -> float | None:
    """The float that the value is. In a column of 32 bits 0.1 means its own 0.1, which is another number."""
    if kind == pa.float32():
        return _narrow(value)
    try:
        return float(value) if float(value) == value else None
    except OverflowError:
        return None


def _narrow(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def whole_interval(parameters: Mapping[str, Any], kind: pa.DataType) -> tuple[int, int]:
    """The first and last whole number (or tick) that a range allows; the first is above the last if none is."""
    low, high = bounds(kind)
    is_instant = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    for name in _LIMITS:
        if name not in parameters:
            continue
        limit = ticks(parameters[name], kind) if is_instant else parameters[name]
        if not isinstance(limit, (int, Fraction)) and math.isinf(limit):
            limit = 2**70 if limit > 0 else -(2**70)
        if "minimum" in name:
            low = max(low, math.floor(limit) + 1 if name.startswith("exclusive") else math.ceil(limit))
        else:
            high = min(high, math.ceil(limit) - 1 if name.startswith("exclusive") else math.floor(limit))
    return low, high


def float_limits(parameters: Mapping[str, Any], kind: pa.DataType) -> dict[str, float]:
    """The limits of a range over a column of floats."""
    limits = {name: parameters[name] for name in _LIMITS if name in parameters}
    return {name: _narrow(value) if kind == pa.float32() else _clipped(value) for name, value in limits.items()}


def _clipped(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def whole_edges(edges: Iterable[Any], kind: pa.DataType) -> list[float | int]:
    """Edges of bins as the column's values are compared with: the least whole number or tick not below, or floats."""
    if pa.types.is_floating(kind):
        return [float_limits({"minimum": edge}, kind)["minimum"] for edge in edges]
    return [whole_interval({"minimum": edge}, kind)[0] for edge in edges]
