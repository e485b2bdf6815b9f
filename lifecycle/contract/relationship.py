"""Compiles one item of `relationships`: the standard's foreign key into another table.

    relationships:                                           # of a property
      - {to: airlines.carrier}
    relationships:                                           # of the table: a composite key
      - {from: [flights.tailnum, flights.seats], to: [planes.tailnum, planes.seats]}

The item's customProperties may hold what a quality item holds: `id`, `severity`, `unit` and one operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from trainworthy.lifecycle.contract.odcs import custom_properties
from trainworthy.lifecycle.contract.quality import OPERATORS, Found, Item, bound_of
from trainworthy.lifecycle.contract.rule import NO_ROW
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.protocol.checks import Severity

_PROPERTIES = ("id", "severity", "unit", *OPERATORS)
# The standard's short notation. Its long one, by ids, may point into other files, which nothing here reads.
_SHORT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")


def compile_relationship(
    values: Mapping[str, Any], column: str | None, place: str, table: str, names: tuple[str, ...]
) -> Found:
    """The rule `references`, or what is wrong; its `table` and `key_columns` are still to be read (completed.py).

    Args:
        column: the property that the item stands below; None below the table.
        table, names: the contract's own table and all of its columns.
    """
    properties = custom_properties(values)
    item = Item(properties, column, place, names, properties.get("severity", "error"))
    problems = list(_wrong_properties(item))
    bound = bound_of(item, NO_ROW)
    if isinstance(bound, Problem):
        problems.append(bound)
    targets, wrong = _parsed(item, "to", values.get("to"))
    columns, own = _own_columns(item, values, table)
    problems += [*wrong, *own]
    others = sorted({name for name, _ in targets})
    if not problems and len(others) > 1:
        problems.append(item.problem("to", "names more than one table", "write one relationship for each", others))
    if not problems and len(targets) != len(columns):
        told = f"{len(columns)} from, {len(targets)} to"
        problems.append(item.problem("to", "names another number of columns than `from`", "name as many", told))
    yield from problems
    if not problems:
        default_id = f"{'+'.join(columns)}.references.{others[0]}"
        key_columns = [name for _, name in targets]
        yield item.rule(default_id, "references", columns, bound=bound, table=others[0], key_columns=key_columns)


def _wrong_properties(item: Item) -> Iterator[Problem]:
    for key in sorted(set(item.values) - set(_PROPERTIES)):
        yield item.problem(f"customProperties.{key}", "unknown property", did_you_mean(key, _PROPERTIES))
    if item.severity not in get_args(Severity):
        fix = did_you_mean(str(item.severity), get_args(Severity))
        yield item.problem("customProperties.severity", "unknown severity", fix, item.severity)
    if not isinstance(item.values.get("id", ""), str):
        yield item.problem("customProperties.id", "must be text", "write a name", item.values["id"])


def _own_columns(item: Item, values: Mapping[str, Any], table: str) -> tuple[tuple[str, ...], list[Problem]]:
    """The columns that refer: the property itself, or those of `from`, which belong to the contract's table."""
    if item.column is not None:
        return (item.column,), []
    found, problems = _parsed(item, "from", values.get("from"))
    for name, column in found:
        if name != table:
            problems.append(item.problem("from", "is not the contract's table", f"write {table}.{column}", name))
        elif column not in item.names:
            fix = did_you_mean(column, item.names)
            problems.append(item.problem("from", "names a column that is not declared", fix, column))
    return tuple(column for _, column in found), problems


def _parsed(item: Item, key: str, written: Any) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Table and column of each `table.column`."""
    found, problems = [], []
    for text in written if isinstance(written, list) else [written]:
        match = _SHORT.fullmatch(str(text))
        if match:
            found.append((match[1], match[2]))
        else:
            problems.append(item.problem(key, "is not in the short notation", "write table.column", text))
    return found, problems
