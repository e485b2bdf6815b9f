"""Compiles the contract's one table into rules (rule.py), column by column.

Some rules nobody writes but everybody needs are always there: the table is not empty, its key is unique, each column
exists with its type, and a column that is not required is not all null unless a bound on its nulls allows it.

Compiles one item of `relationships`: the standard's foreign key into another table.

    relationships:                                           # of a property
      - {to: airlines.carrier}
    relationships:                                           # of the table: a composite key
      - {from: [flights.tailnum, flights.seats], to: [planes.tailnum, planes.seats]}

The item's customProperties may hold what a quality item holds: `id`, `severity`, `unit` and one operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, get_args

from trainworthy.lifecycle.contract.odcs import custom_properties, where
from trainworthy.lifecycle.contract.quality import (
    OPERATORS,
    Item,
    RulesOrProblems,
    bound_of,
    compile_quality,
    wrong_pattern,
)
from trainworthy.lifecycle.contract.rule import (
    AT_LEAST_ONE_ROW,
    NO_ROW,
    NOT_EVERY_ROW,
    Kind,
    LogicalType,
    Rule,
    make_rule,
)
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.protocol.checks import Severity

_RANGE = {"minimum": "minimum", "maximum": "maximum", "exclusiveMinimum": "exclusive_minimum",
          "exclusiveMaximum": "exclusive_maximum"}  # fmt: skip
_LENGTH = {"minLength": "minimum", "maxLength": "maximum"}
# The standard knows more options; one that is not judged would look like a rule and be none, so it is refused.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "string": (*_LENGTH, "pattern"),
    "integer": tuple(_RANGE),
    "number": tuple(_RANGE),
    "date": tuple(_RANGE),
    "timestamp": tuple(_RANGE),
    "boolean": (),
}
_UPPER_BOUNDS = ("mustBe", "mustBeLessThan", "mustBeLessOrEqualTo", "mustBeBetween")


def compile_rules(
    table: Mapping[str, Any], broken: frozenset[tuple[str, int]] = frozenset()
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The table's rules in order of writing, and what is wrong with it.

    `broken` holds ("properties" or "quality", position) of the items whose form is wrong; they are left out.
    """
    compiled = list(_table(table, broken))
    rules = [item for item in compiled if isinstance(item, Rule)]
    return _with_unique_ids(rules), [item for item in compiled if isinstance(item, Problem)]


def column_names(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of all declared columns, in order of writing."""
    return tuple(item["name"] for item in _items(table, "properties") if isinstance(item.get("name"), str))


def sound_properties(table: Mapping[str, Any], broken: frozenset[tuple[str, int]]) -> list[dict[str, Any]]:
    """The declared columns whose form is right."""
    return [item for place, item in enumerate(_items(table, "properties")) if ("properties", place) not in broken]


def primary_key(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the key's columns, by primaryKeyPosition, then in order of writing."""
    keys = [item for item in _items(table, "properties") if item.get("primaryKey") is True]
    return tuple(str(item.get("name")) for item in sorted(keys, key=lambda item: item.get("primaryKeyPosition", 0)))


def _items(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The items below a key, each at its position; one of a wrong form is `broken` and stands here empty."""
    items = parent.get(key)
    return [item if isinstance(item, dict) else {} for item in items] if isinstance(items, list) else []


def _with_unique_ids(rules: list[Rule]) -> tuple[Rule, ...]:
    """The second rule of one id gets the suffix `_2`, and so on."""
    counts: dict[str, int] = {}
    named: list[Rule] = []
    for rule in rules:
        counts[rule.id] = counts.get(rule.id, 0) + 1
        suffix = "" if counts[rule.id] == 1 else f"_{counts[rule.id]}"
        named.append(rule.model_copy(update={"id": rule.id + suffix}))
    return tuple(named)


def _table(table: Mapping[str, Any], broken: frozenset[tuple[str, int]]) -> RulesOrProblems:
    names, key = column_names(table), primary_key(table)
    yield make_rule("not_empty", "row_count", (), bound=AT_LEAST_ONE_ROW)
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(where(name), "the column is declared twice", "keep one declaration")
    if key:
        yield make_rule("primary_key", "unique", key, bound=NO_ROW)
    else:
        yield Problem(where("schema"), "no primary key", "set primaryKey: true on the columns that name a row")
    for item in sound_properties(table, broken):
        yield from _column(item, names)
        for place, relation in enumerate(_items(item, "relationships")):
            at = where(item["name"], "relationships", place)
            yield from compile_relationship(relation, item["name"], at, str(table.get("name")), names)
    for place, item in enumerate(_items(table, "quality")):
        if ("quality", place) not in broken:
            yield from compile_quality(item, None, where("quality", place), names)
    for place, item in enumerate(_items(table, "relationships")):
        if ("relationships", place) not in broken:
            yield from compile_relationship(item, None, where("relationships", place), str(table.get("name")), names)


def _column(item: Mapping[str, Any], names: tuple[str, ...]) -> RulesOrProblems:
    name, logical_type = str(item["name"]), str(item.get("logicalType"))
    if logical_type not in get_args(LogicalType):
        fix = "write logicalType: " + " | ".join(get_args(LogicalType))
        problem = "missing, or a type that a table can't hold"
        yield Problem(where(name, "logicalType"), problem, fix, item.get("logicalType"))
        return
    yield make_rule(f"{name}.type", "type", (name,), bound=NO_ROW, logical_type=logical_type)
    yield from _nulls_and_quality(item, name, names)
    yield from _options(name, logical_type, item.get("logicalTypeOptions") or {})
    if item.get("unique"):
        yield make_rule(f"{name}.unique", "unique", (name,), bound=NO_ROW)


def _nulls_and_quality(item: Mapping[str, Any], name: str, names: tuple[str, ...]) -> RulesOrProblems:
    written = [
        compiled
        for place, quality in enumerate(_items(item, "quality"))
        for compiled in compile_quality(quality, name, where(name, "quality", place), names)
    ]
    if item.get("required") or item.get("primaryKey"):
        yield make_rule(f"{name}.required", "nulls", (name,), bound=NO_ROW)
    elif not any(isinstance(compiled, Rule) and _bounds_nulls(compiled) for compiled in written):
        yield make_rule(f"{name}.not_all_null", "nulls", (name,), bound=NOT_EVERY_ROW)
    yield from written


def _bounds_nulls(rule: Rule) -> bool:
    """True if the rule stops a run that has too many nulls: a warning does not."""
    counts = rule.kind == "nulls" or (rule.kind == "missing" and None in rule.parameters["values"])
    return counts and rule.severity == "error" and rule.parameters["bound"]["operator"] in _UPPER_BOUNDS


def _options(name: str, logical_type: str, options: Mapping[str, Any]) -> RulesOrProblems:
    known = _OPTIONS[logical_type]
    for key in sorted(set(options) - set(known)):
        fix = did_you_mean(key, known) if known else "remove it: a boolean has no options"
        yield Problem(where(name, "logicalTypeOptions", key), "not judged here, so it would have no effect", fix)
    judged = {key: value for key, value in options.items() if key in known}
    if "pattern" in judged:
        wrong = wrong_pattern(judged["pattern"], where(name, "logicalTypeOptions", "pattern"))
        yield wrong or make_rule(f"{name}.pattern", "pattern", (name,), bound=NO_ROW, pattern=judged["pattern"])
    yield from _interval(name, "length", {_LENGTH[key]: judged[key] for key in _LENGTH if key in judged})
    yield from _interval(name, "range", {_RANGE[key]: judged[key] for key in _RANGE if key in judged})


def _interval(name: str, kind: Kind, limits: dict[str, Any]) -> RulesOrProblems:
    place = where(name, "logicalTypeOptions")
    wrong = [value for value in limits.values() if isinstance(value, str) and not _is_instant(value)]
    low = limits.get("minimum", limits.get("exclusive_minimum"))
    high = limits.get("maximum", limits.get("exclusive_maximum"))
    if wrong:
        fix = "write an ISO 8601 date or time, for example '2013-01-01' or '2013-01-01T00:00:00+00:00'"
        yield Problem(place, "not a date or time", fix, wrong[0])
    elif {"minimum", "exclusive_minimum"} <= set(limits) or {"maximum", "exclusive_maximum"} <= set(limits):
        yield Problem(place, "an exclusive and an inclusive limit on the same side", "keep one of the two")
    elif low is not None and high is not None and low > high:
        yield Problem(place, "the minimum is above the maximum", "swap or correct them", [low, high])
    elif limits:
        yield make_rule(f"{name}.{kind}", kind, (name,), bound=NO_ROW, **limits)


def _is_instant(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


_PROPERTIES = ("id", "severity", "unit", *OPERATORS)
# The standard's short notation. Its long one, by ids, may point into other files, which nothing here reads.
_SHORT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")


def compile_relationship(
    values: Mapping[str, Any], column: str | None, place: str, table: str, names: tuple[str, ...]
) -> RulesOrProblems:
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
    tables = sorted({name for name, _ in targets})
    if not problems and len(tables) > 1:
        problems.append(item.problem("to", "names more than one table", "write one relationship for each", tables))
    if not problems and len(targets) != len(columns):
        counts = f"{len(columns)} from, {len(targets)} to"
        problems.append(item.problem("to", "names another number of columns than `from`", "name as many", counts))
    yield from problems
    if not problems:
        default_id = f"{'+'.join(columns)}.references.{tables[0]}"
        key_columns = [name for _, name in targets]
        yield item.rule(default_id, "references", columns, bound=bound, table=tables[0], key_columns=key_columns)


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
    references, problems = _parsed(item, "from", values.get("from"))
    for name, column in references:
        if name != table:
            problems.append(item.problem("from", "is not the contract's table", f"write {table}.{column}", name))
        elif column not in item.names:
            fix = did_you_mean(column, item.names)
            problems.append(item.problem("from", "names a column that is not declared", fix, column))
    return tuple(column for _, column in references), problems


def _parsed(item: Item, key: str, written: Any) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Table and column of each `table.column`."""
    references, problems = [], []
    for text in written if isinstance(written, list) else [written]:
        match = _SHORT.fullmatch(str(text))
        if match:
            references.append((match[1], match[2]))
        else:
            problems.append(item.problem(key, "is not in the short notation", "write table.column", text))
    return references, problems
