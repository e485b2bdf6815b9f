"""Where Great Expectations has no expectation that counts as a rule says, each row is marked before: true if it holds.

Its regular expressions are those of the column's storage (Arrow's, not Python's), its limits are floats, an empty list
of values is refused, and it knows neither keys of another table nor columns that are null together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainworthy.expectations.frames import INEXACT, ticks_or_values
from trainworthy.lifecycle.contract.literals import listed, place, whole_edges, whole_interval
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.contract.table import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


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


def found_marks(rule: Rule, rows: pd.DataFrame, table: Table) -> pd.Series:
    """True in rows that keep the rule, false in those that break it, null where it says nothing."""
    import pandas as pd

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
    import pandas as pd

    kinds = [table.types[name] for name in rule.columns]
    keys = {
        tuple(place(value, kind) for value, kind in zip(key, kinds, strict=True)) for key in rule.parameters["keys"]
    }
    columns = [ticks_or_values(rows[name], kind).astype(object) for name, kind in zip(rule.columns, kinds, strict=True)]
    return pd.Series([row in keys for row in zip(*columns, strict=True)], index=rows.index, dtype=object)


def bins(rule: Rule, values: pd.Series, table: Table) -> np.ndarray:
    """Each value's bin of a distribution (rule.py); the last is that of nulls."""
    import numpy as np

    name, null_bin = rule.columns[0], len(rule.parameters["counts"]) - 1
    if table.held(name) == "null":
        return np.full(len(values), null_bin)
    numbers, kind = ticks_or_values(values, table.types[name]), table.types[name]
    present = numbers.dropna()
    if "edges" in rule.parameters:
        edges: list[Any] = whole_edges(rule.parameters["edges"], kind)
        found = sum((_reached(present, edge) for edge in edges), start=np.zeros(len(present), dtype=int))
    else:
        places = {}
        for at, value in enumerate(rule.parameters["values"]):
            places.setdefault(place(value, kind), at)
        found = np.array([places.get(value, null_bin - 1) for value in present.tolist()], dtype=int)
    result = np.full(len(values), null_bin)
    result[numbers.notna().to_numpy()] = found
    return result


def _reached(values: pd.Series, edge: Any) -> np.ndarray:
    return (values >= edge).to_numpy(dtype=int)
