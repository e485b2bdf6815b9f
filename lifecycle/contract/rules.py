"""Compiles the contract's one table into rules (rule.py), column by column.

Some rules nobody writes but everybody needs are always there: the table is not empty, its key is unique, each column
exists with its type, and a column that is not required is not all null unless a bound on its nulls allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

from trainworthy.lifecycle.contract.odcs import where
from trainworthy.lifecycle.contract.quality import Found, compile_quality, wrong_pattern
from trainworthy.lifecycle.contract.relationship import compile_relationship
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
    found = list(_table(table, broken))
    rules = [item for item in found if isinstance(item, Rule)]
    return _with_unique_ids(rules), [item for item in found if isinstance(item, Problem)]


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
    seen: dict[str, int] = {}
    named: list[Rule] = []
    for rule in rules:
        seen[rule.id] = seen.get(rule.id, 0) + 1
        suffix = "" if seen[rule.id] == 1 else f"_{seen[rule.id]}"
        named.append(rule.model_copy(update={"id": rule.id + suffix}))
    return tuple(named)


def _table(table: Mapping[str, Any], broken: frozenset[tuple[str, int]]) -> Found:
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


def _column(item: Mapping[str, Any], names: tuple[str, ...]) -> Found:
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


def _nulls_and_quality(item: Mapping[str, Any], name: str, names: tuple[str, ...]) -> Found:
    written = [
        found
        for place, quality in enumerate(_items(item, "quality"))
        for found in compile_quality(quality, name, where(name, "quality", place), names)
    ]
    if item.get("required") or item.get("primaryKey"):
        yield make_rule(f"{name}.required", "nulls", (name,), bound=NO_ROW)
    elif not any(isinstance(found, Rule) and _bounds_nulls(found) for found in written):
        yield make_rule(f"{name}.not_all_null", "nulls", (name,), bound=NOT_EVERY_ROW)
    yield from written


def _bounds_nulls(rule: Rule) -> bool:
    """True if the rule stops a run that has too many nulls: a warning does not."""
    counts = rule.kind == "nulls" or (rule.kind == "missing" and None in rule.parameters["values"])
    return counts and rule.severity == "error" and rule.parameters["bound"]["operator"] in _UPPER_BOUNDS


def _options(name: str, logical_type: str, options: Mapping[str, Any]) -> Found:
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


def _interval(name: str, kind: Kind, limits: dict[str, Any]) -> Found:
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
