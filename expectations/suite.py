"""Compiles rules into Great Expectations: one expectation a rule, grouped by the frame that it is judged on.

Great Expectations hashes each frame twice and copies it for every mask, so a frame holds only the columns of its
rules: with 66 columns, one frame for all would make each copy 66 columns wide. Some kinds are judged on a derived
frame, so that plain expectations suffice: types (their names in one row), values that mean missing (made null), bins of
a distribution, the hour of day in a time zone, instants as whole ticks since 1970, and marks, true in a row that
holds, where no expectation counts as the rule says: Great Expectations' regular expressions are those of the column's
storage (Arrow's, not Python's), its limits are floats, an empty list of values is refused, and it knows neither keys of
another table nor columns that are null together.

What Great Expectations counts decides, its own `success` does not: it knows no bound in rows, and a rule over nulls
only or over an empty table succeeds. The suite lives in memory: stored suites carry random ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from trainworthy.expectations.frames import INEXACT, local_hours, own_values, ticks_or_values
from trainworthy.lifecycle.contract.literals import float_limits, listed, place, whole_edges, whole_interval
from trainworthy.lifecycle.contract.result import ACCEPTED
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.contract.table import Table, type_held


def is_marked(rule: Rule, table: Table) -> bool:
    """True if the rule is judged on marks."""
    if rule.kind in ("pattern", "references", "null_together") or _says_nothing(rule, table):
        return True
    if rule.kind in ("allowed", "missing") and not (rule.kind == "missing" and None in rule.parameters["values"]):
        return not listed(rule.parameters["values"], table.types[rule.columns[0]])
    if rule.kind != "range" or table.held(rule.columns[0]) == "number":
        return False
    low, high = whole_interval(rule.parameters, table.types[rule.columns[0]])
    given = [
        end for word, end in (("minimum", low), ("maximum", high)) if any(word in name for name in rule.parameters)
    ]
    return low > high or any(abs(end) >= INEXACT for end in given)


def _says_nothing(rule: Rule, table: Table) -> bool:
    """True for a rule over values of which one is always null: such a column has no type to compare with."""
    compared = rule.kind in ("range", "length", "allowed", "less_or_equal", "equal", "hour_in_zone")
    return compared and any(table.held(name) == "null" for name in rule.columns)


def row_marks(rule: Rule, rows: pd.DataFrame, table: Table) -> pd.Series:
    """True in rows that keep the rule, false in those that break it, null where it says nothing."""
    first = rows[rule.columns[0]]
    if _says_nothing(rule, table):
        return pd.Series(None, index=rows.index, dtype=object)
    if rule.kind == "null_together":
        nulls = rows[list(rule.columns)].isna()
        return nulls.all(axis=1) == nulls.any(axis=1)
    if rule.kind == "references":
        holds = _is_known(rule, rows, table)
        return holds.where(rows[list(rule.columns)].notna().all(axis=1))
    if rule.kind == "pattern":
        search = re.compile(rule.parameters["pattern"]).search
        verdicts = {value: search(value) is not None for value in first.dropna().unique()}
        return first.astype(object).map(verdicts).where(first.notna())
    if rule.kind == "range":
        holds = _is_within(rule, first, table)
    else:
        # An empty list: nothing is allowed, and nothing is missing.
        holds = pd.Series(rule.kind == "missing", index=first.index, dtype=object)
    return holds.astype(object).where(first.notna())


def _is_within(rule: Rule, values: pd.Series, table: Table) -> pd.Series:
    kind = table.types[rule.columns[0]]
    low, high = whole_interval(rule.parameters, kind)
    numbers = ticks_or_values(values, kind).dropna()
    numbers = numbers.astype("uint64" if numbers.dtype in ("uint64", "UInt64") else "int64")
    return ((numbers >= low) & (numbers <= high)).reindex(values.index)


def _is_known(rule: Rule, rows: pd.DataFrame, table: Table) -> pd.Series:
    """True where the row's values are one of the keys."""
    kinds = [table.types[name] for name in rule.columns]
    keys = {
        tuple(place(value, kind) for value, kind in zip(key, kinds, strict=True)) for key in rule.parameters["keys"]
    }
    columns = [ticks_or_values(rows[name], kind).astype(object) for name, kind in zip(rule.columns, kinds, strict=True)]
    return pd.Series([row in keys for row in zip(*columns, strict=True)], index=rows.index, dtype=object)


def bins(rule: Rule, values: pd.Series, table: Table) -> np.ndarray:
    """Each value's bin of a distribution (rule.py); the last is that of nulls."""
    name, null_bin = rule.columns[0], len(rule.parameters["counts"]) - 1
    if table.held(name) == "null":
        return np.full(len(values), null_bin)
    numbers, kind = ticks_or_values(values, table.types[name]), table.types[name]
    present = numbers.dropna()
    if "edges" in rule.parameters:
        edges: list[Any] = whole_edges(rule.parameters["edges"], kind)
        bin_numbers = sum((_reached(present, edge) for edge in edges), start=np.zeros(len(present), dtype=int))
    else:
        places = {}
        for at, value in enumerate(rule.parameters["values"]):
            places.setdefault(place(value, kind), at)
        bin_numbers = np.array([places.get(value, null_bin - 1) for value in present.tolist()], dtype=int)
    result = np.full(len(values), null_bin)
    result[numbers.notna().to_numpy()] = bin_numbers
    return result


def _reached(values: pd.Series, edge: Any) -> np.ndarray:
    return (values >= edge).to_numpy(dtype=int)


# A value of this name in a derived frame is a mark: true where the rule holds, null where it says nothing.
HOLDS = "holds"


@dataclass(frozen=True)
class Group:
    """Rules that are judged on one frame; `build` makes it from these columns of the table and may raise."""

    rules: tuple[Rule, ...]
    columns: tuple[str, ...]
    build: Callable[[pd.DataFrame], pd.DataFrame]


def groups(rules: Iterable[Rule], table: Table) -> Iterator[Group]:
    """Each rule once, with the others that share its frame."""
    shared: dict[tuple[str, ...], list[Rule]] = {}
    for rule in rules:
        key = ("rule", rule.id) if _is_derived(rule, table) else (*rule.columns,)
        shared.setdefault(("type",) if rule.kind == "type" else key, []).append(rule)
    for members in shared.values():
        columns = tuple(dict.fromkeys(name for rule in members for name in _read(rule, table)))
        yield Group(tuple(members), columns, lambda rows, members=tuple(members): _frame(rows, members, table))


def _read(rule: Rule, table: Table) -> tuple[str, ...]:
    """The columns that the rule's frame is made from; a type stands in the schema, but for a wall-clock date."""
    if rule.kind != "type":
        return rule.columns
    name = rule.columns[0]
    read = name in table.types and name not in table.conflicts and table.held(name) == "timestamp"
    return rule.columns if read and not table.is_aware(name) else ()


def _is_derived(rule: Rule, table: Table) -> bool:
    if rule.kind in ("hour_in_zone", "distribution") or _null_means_missing(rule):
        return True
    return is_marked(rule, table) or (rule.kind in ("range", "allowed", "missing") and _is_instant(rule, table))


def _is_instant(rule: Rule, table: Table) -> bool:
    return table.held(rule.columns[0]) in ("date", "timestamp")


def _frame(rows: pd.DataFrame, rules: tuple[Rule, ...], table: Table) -> pd.DataFrame:
    first = rules[0]
    if first.kind == "type":
        return _type_names(rows, [rule.columns[0] for rule in rules], table)
    if not first.columns:
        return pd.DataFrame({"row": pd.RangeIndex(table.rows)})
    if first.kind == "distribution":
        return pd.DataFrame({first.columns[0]: bins(first, rows[first.columns[0]], table)})
    if is_marked(first, table):
        return row_marks(first, rows, table).rename(HOLDS).to_frame()
    if first.kind == "hour_in_zone":
        return local_hours(rows, *first.columns, zone=first.parameters["zone"])
    if not _is_derived(first, table):
        return pd.DataFrame({name: own_values(rows[name]) for name in first.columns})
    values = ticks_or_values(rows[first.columns[0]], table.types[first.columns[0]])
    if _null_means_missing(first):
        values = values.mask(values.isin(_listed(first, table)))
    return values.to_frame()


def _null_means_missing(rule: Rule) -> bool:
    return rule.kind == "missing" and None in rule.parameters["values"]


def _listed(rule: Rule, table: Table) -> list[Any]:
    return listed(rule.parameters["values"], table.types[rule.columns[0]])


def _type_names(rows: pd.DataFrame, columns: list[str], table: Table) -> pd.DataFrame:
    """One row that holds, for each column, the logical type of its values or what is there instead."""

    def all_midnight(name: str) -> bool:
        return name in rows and bool((rows[name].dropna().dt.normalize() == rows[name].dropna()).all())

    return pd.DataFrame({name: [type_held(name, table, all_midnight(name))] for name in columns})


def gx_expectations() -> Any:
    """Great Expectations' own expectations; typed Any, as its package marks none of them as exported."""
    import great_expectations.expectations as gxe

    return gxe


# The rule's null rules judge nulls; a comparison with one says nothing.
_SKIP = "either_value_is_missing"


def expectations(rule: Rule, table: Table) -> list[Any]:
    """The rule as Great Expectations expectations: one, or one a bin, whose unexpected rows are the bin's."""
    if rule.kind != "distribution":
        return [expectation(rule, table)]
    gxe, column = gx_expectations(), rule.columns[0]
    return [
        gxe.ExpectColumnValuesToNotBeInSet(column=column, value_set=[place], meta={"rule": rule.id})
        for place in range(len(rule.parameters["counts"]))
    ]


def expectation(rule: Rule, table: Table) -> Any:
    """The rule as a Great Expectations expectation on its group's frame, marked with the rule's id."""
    gxe = gx_expectations()
    columns, meta = list(rule.columns), {"rule": rule.id}
    if rule.kind == "row_count":
        return gxe.ExpectTableRowCountToBeBetween(min_value=0, meta=meta)
    if rule.kind == "type":
        declared = rule.parameters["logical_type"]
        accepted = list(ACCEPTED.get(declared, (declared,)))
        return gxe.ExpectColumnValuesToBeInSet(column=columns[0], value_set=accepted, meta=meta)
    if is_marked(rule, table):
        return gxe.ExpectColumnValuesToBeInSet(column=HOLDS, value_set=[True], meta=meta)
    if rule.kind == "unique" and len(columns) > 1:
        return gxe.ExpectCompoundColumnsToBeUnique(column_list=columns, ignore_row_if="never", meta=meta)
    if rule.kind == "less_or_equal":
        return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A=columns[1], column_B=columns[0], or_equal=True, ignore_row_if=_SKIP, meta=meta
        )
    if rule.kind in ("equal", "hour_in_zone"):
        return gxe.ExpectColumnPairValuesToBeEqual(
            column_A=columns[0], column_B=columns[1], ignore_row_if=_SKIP, meta=meta
        )
    return _of_one_column(rule, columns[0], table, meta)


def _of_one_column(rule: Rule, column: str, table: Table, meta: dict[str, Any]) -> Any:
    gxe = gx_expectations()
    if rule.kind == "nulls" or _null_means_missing(rule):
        return gxe.ExpectColumnValuesToNotBeNull(column=column, meta=meta)
    if rule.kind == "missing":
        return gxe.ExpectColumnValuesToNotBeInSet(column=column, value_set=_listed(rule, table), meta=meta)
    if rule.kind == "allowed":
        return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=_listed(rule, table), meta=meta)
    if rule.kind == "unique":
        return gxe.ExpectColumnValuesToBeUnique(column=column, meta=meta)
    if rule.kind == "length":
        return gxe.ExpectColumnValueLengthsToBeBetween(
            column=column,
            min_value=rule.parameters.get("minimum"),
            max_value=rule.parameters.get("maximum"),
            meta=meta,
        )
    assert rule.kind == "range", rule
    return gxe.ExpectColumnValuesToBeBetween(column=column, **_limits(rule, table), meta=meta)


def _limits(rule: Rule, table: Table) -> dict[str, Any]:
    """The range in the words of Great Expectations; of whole numbers both ends are inclusive."""
    kind = table.types[rule.columns[0]]
    if not pa.types.is_floating(kind):
        low, high = whole_interval(rule.parameters, kind)
        ends = {"min_value": ("minimum", low), "max_value": ("maximum", high)}
        return {end: value for end, (word, value) in ends.items() if any(word in name for name in rule.parameters)}
    limits = float_limits(rule.parameters, kind)
    return {
        "min_value": limits.get("minimum", limits.get("exclusive_minimum")),
        "max_value": limits.get("maximum", limits.get("exclusive_maximum")),
        "strict_min": "exclusive_minimum" in limits,
        "strict_max": "exclusive_maximum" in limits,
    }
