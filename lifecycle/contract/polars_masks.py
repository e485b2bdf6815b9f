"""Rules as polars expressions: what each counts in a batch of rows. A count adds up over the batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from trainworthy.lifecycle.contract.batches import polars_type
from trainworthy.lifecycle.contract.literals import bounds, float_limits, listed, place, whole_edges, whole_interval
from trainworthy.lifecycle.contract.rule import Rule, surplus
from trainworthy.lifecycle.contract.table import Table

_COMPARED = ("range", "length", "pattern", "allowed", "less_or_equal", "equal", "hour_in_zone", "references")
_DAY_TICKS = {"ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


@dataclass(frozen=True)
class Tally:
    """Expressions that each give one number of a batch, and the rule's count from their sums."""

    expressions: tuple[pl.Expr, ...]
    count: Callable[[Sequence[int]], int]


def tally(rule: Rule, table: Table) -> Tally:
    """What is summed for a rule. Not for unique, whose rows are counted across batches, and not for row_count."""
    if rule.kind == "distribution":
        return _distribution(rule, table)
    return Tally((broken_by(rule, table).sum(),), lambda sums: sums[0])


def broken_by(rule: Rule, table: Table) -> pl.Expr:
    """True in the rows that break the rule; false or null in all others."""
    first = _named(rule.columns[0])
    held = [table.held(name) for name in rule.columns]
    if "null" in held and rule.kind in _COMPARED:
        return pl.lit(value=False)
    match rule.kind:
        case "type":
            # A wall-clock time that is no midnight.
            return first.to_physical() % _DAY_TICKS[table.types[rule.columns[0]].unit] != 0
        case "nulls":
            return first.is_null()
        case "null_together":
            nulls = [_named(name).is_null() for name in rule.columns]
            return pl.any_horizontal(nulls) & ~pl.all_horizontal(nulls)
        case "missing":
            nulls = first.is_null() if None in rule.parameters["values"] else pl.lit(value=False)
            return nulls if "null" in held else nulls | _is_listed(rule.columns[0], rule.parameters["values"], table)
        case "allowed":
            return ~_is_listed(rule.columns[0], rule.parameters["values"], table)
        case "length":
            return _outside(first.str.len_chars(), {**rule.parameters})
        case "range":
            return _out_of_range(rule, table)
        case "pattern":
            return first.map_batches(_not_found(rule.parameters["pattern"]), return_dtype=pl.Boolean)
        case "hour_in_zone":
            return first.dt.convert_time_zone(rule.parameters["zone"]).dt.hour() != _named(rule.columns[1])
        case "less_or_equal":
            return _greater(rule, table)
        case "equal":
            a, b = _comparable(rule, table)
            return pl.any_horizontal([left != right for left, right in zip(a, b, strict=True)])
        case "references":
            return _unknown_key(rule, table)
    raise AssertionError(rule)


def _named(name: str) -> pl.Expr:
    # pl.col would take a name such as ^a$ for a pattern.
    return pl.selectors.by_name(name).as_expr()


def _physical(name: str, table: Table) -> pl.Expr:
    """A column's values as numbers where they are dates or times."""
    is_time = table.held(name) in ("date", "timestamp")
    return _named(name).to_physical().cast(pl.Int64) if is_time else _named(name)


def _series(name: str, values: Sequence[Any], table: Table) -> pl.Series:
    kind = pl.Int64() if table.held(name) in ("date", "timestamp") else polars_type(table.types[name])
    return pl.Series(values, dtype=kind)


def _is_listed(name: str, values: Sequence[Any], table: Table) -> pl.Expr:
    known = _series(name, listed(values, table.types[name]), table)
    return _physical(name, table).is_in(known.implode())


def _outside(values: pl.Expr, limits: dict[str, Any]) -> pl.Expr:
    outside = pl.lit(value=False)
    if "minimum" in limits:
        outside |= values < limits["minimum"]
    if "exclusive_minimum" in limits:
        outside |= values <= limits["exclusive_minimum"]
    if "maximum" in limits:
        outside |= values > limits["maximum"]
    if "exclusive_maximum" in limits:
        outside |= values >= limits["exclusive_maximum"]
    return outside


def _out_of_range(rule: Rule, table: Table) -> pl.Expr:
    name = rule.columns[0]
    kind = table.types[name]
    values = _physical(name, table)
    if pa.types.is_floating(kind):
        return _outside(values, float_limits(rule.parameters, kind))
    low, high = whole_interval(rule.parameters, kind)
    return values.is_not_null() if low > high else ~values.is_between(low, high)


def _not_found(pattern: str) -> Callable[[pl.Series], pl.Series]:
    """Python's `re.search` on the distinct values: polars' expressions are of another dialect, without look-around."""
    search = re.compile(pattern).search

    def judge(values: pl.Series) -> pl.Series:
        broken = [value for value in values.unique().to_list() if value is not None and not search(value)]
        return values.is_in(pl.Series(broken, dtype=pl.String).implode())

    return judge


def _comparable(rule: Rule, table: Table) -> tuple[tuple[pl.Expr, ...], tuple[pl.Expr, ...]]:
    """Both columns as one number, or as two where their units differ: what a finer one has beyond a coarser tick."""
    kinds = [table.types[name] for name in rule.columns]
    if all(table.held(name) in ("date", "timestamp") for name in rule.columns) and kinds[0] != kinds[1]:
        ticks = [_DAY_TICKS[kind.unit] if pa.types.is_timestamp(kind) else 1 for kind in kinds]
        coarsest = min(ticks)
        parts = [
            (
                _physical(name, table) // (own // coarsest),
                _physical(name, table) % (own // coarsest) * (max(ticks) // own),
            )
            for name, own in zip(rule.columns, ticks, strict=True)
        ]
        return parts[0], parts[1]
    # An integer beside a float is compared as a float.
    wide = pl.Int128() if pa.uint64() in kinds and pa.int64() in kinds else None
    first, second = (_physical(name, table) for name in rule.columns)
    return ((first.cast(wide),), (second.cast(wide),)) if wide else ((first,), (second,))


def _greater(rule: Rule, table: Table) -> pl.Expr:
    a, b = _comparable(rule, table)
    greater = a[0] > b[0]
    return greater if len(a) == 1 else greater | ((a[0] == b[0]) & (a[1] > b[1]))


def _unknown_key(rule: Rule, table: Table) -> pl.Expr:
    names, kinds = list(rule.columns), [table.types[name] for name in rule.columns]
    placed = [[place(value, kind) for value, kind in zip(key, kinds, strict=True)] for key in rule.parameters["keys"]]
    keys = [key for key in placed if None not in key]
    if len(names) == 1:
        return ~_physical(names[0], table).is_in(_series(names[0], [key[0] for key in keys], table).implode())
    labels = [str(number) for number in range(len(names))]
    series = [_series(name, [key[number] for key in keys], table) for number, name in enumerate(names)]
    known = pl.DataFrame(dict(zip(labels, series, strict=True)))

    def judge(values: pl.Series) -> pl.Series:
        return absent_from(values.struct.unnest(), known)

    columns = [_physical(name, table).alias(label) for name, label in zip(names, labels, strict=True)]
    return pl.struct(columns).map_batches(judge, return_dtype=pl.Boolean)


def absent_from(rows: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """True for each row without a null that is none of `known`, which has the same columns."""
    marked = known.unique().with_columns(pl.lit(value=True).alias("known"))
    joined = rows.join(marked, on=known.columns, how="left", maintain_order="left")
    return joined.select(pl.col("known").is_null() & pl.all_horizontal(pl.col(known.columns).is_not_null())).to_series()


def _distribution(rule: Rule, table: Table) -> Tally:
    """Rows at or above each edge, or equal to each value; the counts of bins are their differences."""
    name, reference = rule.columns[0], rule.parameters["counts"]
    values, kind = _physical(name, table), table.types[name]
    rows = (pl.len(), values.is_null().sum())
    if "edges" in rule.parameters:
        edges = whole_edges(rule.parameters["edges"], kind) if table.held(name) != "null" else []
        _, highest = bounds(kind)
        reached = tuple(
            pl.lit(0) if isinstance(edge, int) and edge > highest else (values >= edge).sum() for edge in edges
        )
        return Tally((*rows, *reached), lambda sums: surplus(_between(sums, len(reference)), reference))
    places = [place(value, kind) for value in rule.parameters["values"]]
    equal = tuple(pl.lit(0) if value is None else (values == value).sum() for value in places)
    return Tally((*rows, *equal), lambda sums: surplus(_bin_counts(sums), reference))


def _between(sums: Sequence[int], bins: int) -> list[int]:
    rows, nulls, *reached = sums
    reached = [rows - nulls, *reached, *[0] * (bins - 1 - len(reached))][: bins - 1]
    return [own - above for own, above in zip(reached, [*reached[1:], 0], strict=True)] + [nulls]


def _bin_counts(sums: Sequence[int]) -> list[int]:
    rows, nulls, *equal = sums
    return [*equal, rows - nulls - sum(equal), nulls]
