"""Compiles one `quality` item of the contract: a library metric of the standard, or a rule of Trainworthy's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainworthy.lifecycle.contract.rule import NO_ROW, Kind, Rule, make_rule
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.protocol.checks import Severity

ENGINE = "trainworthy"
# Rules of our own, with how many columns each names (least, most).
CUSTOM: dict[Kind, tuple[int, int | None]] = {
    "less_or_equal": (2, 2), "equal": (2, 2), "hour_in_zone": (2, 2),
    "null_together": (2, None), "distribution": (1, 1),
}  # fmt: skip
OPERATORS = ("mustBe", "mustNotBe", "mustBeGreaterThan", "mustBeGreaterOrEqualTo", "mustBeLessThan",
             "mustBeLessOrEqualTo", "mustBeBetween", "mustNotBeBetween")  # fmt: skip
# The arguments that each metric reads; rowCount and a column's nullValues and duplicateValues read none.
_ARGUMENTS = {"missingValues": ("missingValues",), "invalidValues": ("validValues", "pattern")}

RulesOrProblems = Iterator[Rule | Problem]


@dataclass(frozen=True)
class Item:
    """A quality item with its place: below `column`, or below the table (None); `names` are all declared columns."""

    values: Mapping[str, Any]
    column: str | None
    place: str
    names: tuple[str, ...]
    severity: Severity = "error"

    def problem(self, key: str, problem: str, fix: str, value: object = None) -> Problem:
        """A problem at a key of this item ("" for the item itself)."""
        return Problem(f"{self.place}.{key}" if key else self.place, problem, fix, value)

    def rule(self, default_id: str, kind: Kind, columns: tuple[str, ...], **parameters: Any) -> Rule:
        """A rule of this item's severity, called by its id or name if it has one."""
        identifier = self.values.get("id") or self.values.get("name") or default_id
        return make_rule(identifier, kind, columns, self.severity, **parameters)


def compile_quality(
    values: Mapping[str, Any], column: str | None, place: str, names: tuple[str, ...]
) -> RulesOrProblems:
    """The item's rule, or what is wrong with it."""
    severity, kind = values.get("severity", "error"), values.get("type", "library")
    if severity not in get_args(Severity):
        fix = did_you_mean(str(severity), get_args(Severity))
        yield Problem(f"{place}.severity", "unknown severity", fix, severity)
        return
    item = Item(values, column, place, names, severity)
    if kind == "library":
        yield from _library(item)
    elif kind == "custom":
        yield from _custom(item)
    elif kind == "sql":
        yield item.problem("", "SQL rules are not evaluated", "write a library metric or a custom rule instead")
    # `text` is for readers, by the standard.


def _library(item: Item) -> RulesOrProblems:
    bound = bound_of(item)
    if isinstance(bound, Problem):
        yield bound
        return
    metric = str(item.values.get("metric"))
    arguments = item.values.get("arguments") or {}
    yield from _unknown_arguments(item, metric, arguments)
    if metric == "duplicateValues":
        columns = (item.column,) if item.column else tuple(arguments.get("properties") or ())
        yield from _on_named_columns(item, "+".join(map(str, columns)) + ".unique", "unique", columns, bound=bound)
    elif (metric == "rowCount") != (item.column is None):
        fix = "put rowCount below the table, and the metrics of a column below the column"
        yield item.problem("metric", "does not belong here", fix, metric)
    elif metric == "rowCount":
        yield _row_count(item, bound)
    else:
        yield _of_column(item, metric, str(item.column), arguments, bound)


def _unknown_arguments(item: Item, metric: str, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    compound = metric == "duplicateValues" and item.column is None
    known = ("properties",) if compound else _ARGUMENTS.get(metric, ())
    for key in sorted(set(map(str, arguments)) - set(known)):
        yield item.problem(f"arguments.{key}", "unknown key", did_you_mean(key, known) if known else "remove it")


def _row_count(item: Item, bound: dict[str, Any]) -> Rule | Problem:
    if bound["unit"] == "percent":
        return item.problem("unit", "a row count is not a share", "write unit: rows", "percent")
    return item.rule("row_count", "row_count", (), bound=bound)


def _of_column(item: Item, metric: str, column: str, arguments: Mapping[str, Any], bound: Any) -> Rule | Problem:
    if metric == "nullValues":
        return item.rule(f"{column}.nulls", "nulls", (column,), bound=bound)
    if metric == "missingValues":
        values = arguments.get("missingValues")
        if not isinstance(values, list) or not values:
            return item.problem("arguments.missingValues", "must be a list", "list the values that mean missing")
        return item.rule(f"{column}.missing", "missing", (column,), bound=bound, values=values)
    values, pattern = arguments.get("validValues"), arguments.get("pattern")
    if (values is None) == (pattern is None):
        return item.problem("arguments", "do not say what is valid", "give exactly one of validValues and pattern")
    if pattern is not None:
        wrong = wrong_pattern(pattern, f"{item.place}.arguments.pattern")
        return wrong or item.rule(f"{column}.pattern", "pattern", (column,), bound=bound, pattern=pattern)
    if not isinstance(values, list) or not values:
        return item.problem("arguments.validValues", "must be a list of values", "list what is valid", values)
    return item.rule(f"{column}.allowed", "allowed", (column,), bound=bound, values=values)


def wrong_pattern(pattern: Any, place: str) -> Problem | None:
    """What is wrong with a regular expression, if anything."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        return Problem(place, f"not a regular expression: {error}", "correct the pattern", pattern)
    return None


def bound_of(item: Item, default: dict[str, Any] | None = None) -> dict[str, Any] | Problem:
    """The item's one operator with its value and unit; `default` if it writes none."""
    unit = item.values.get("unit", "rows")
    if unit not in ("rows", "percent"):
        return item.problem("unit", "unknown unit", did_you_mean(str(unit), ("rows", "percent")), unit)
    operators = [key for key in OPERATORS if key in item.values]
    if not operators and default is not None:
        return default
    if len(operators) != 1:
        return item.problem("", "the bound is missing", f"give exactly one of {', '.join(OPERATORS)}")
    operator, value = operators[0], item.values[operators[0]]
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
        return item.problem(operator, "must be a number", "write how many rows, or percent of all rows", value)
    if (len(numbers) if isinstance(value, list) else 0) != (2 if operator.endswith("Between") else 0):
        return item.problem(operator, "has another number of limits", "write one number; [low, high] between", value)
    highest = 100 if unit == "percent" else float("inf")
    if any(not 0 <= number <= highest for number in numbers) or numbers != sorted(numbers):
        return item.problem(operator, f"no possible number of {unit}", "correct the bound", value)
    return {"operator": operator, "value": value, "unit": unit}


def _custom(item: Item) -> RulesOrProblems:
    values = item.values.get("implementation")
    if item.values.get("engine") != ENGINE or not isinstance(values, dict):
        fix = f"write engine: {ENGINE} and implementation: {{rule: {' | '.join(CUSTOM)}, columns: [a, b]}}"
        yield item.problem("engine", "an engine or form that is not evaluated", fix, item.values.get("engine"))
        return
    kind: Kind | None = next((known for known in CUSTOM if known == values.get("rule")), None)
    if kind is None:
        fix = did_you_mean(str(values.get("rule")), CUSTOM)
        yield item.problem("implementation.rule", "unknown rule", fix, values.get("rule"))
        return
    # The standard allows an operator beside a metric only, so the bound of such a rule stands in its implementation.
    inner = replace(
        item, values={"unit": item.values.get("unit", "rows"), **values}, place=f"{item.place}.implementation"
    )
    bound = bound_of(inner, None if kind == "distribution" else NO_ROW)
    problems = [*_wrong_implementation(inner, kind, values), *([bound] if isinstance(bound, Problem) else [])]
    yield from problems
    if not problems:
        columns = tuple(values["columns"])
        rest = {"zone": values["zone"]} if kind == "hour_in_zone" else {}
        default_id = f"{columns[0]}.{kind}.{'+'.join(map(str, columns[1:]))}".removesuffix(".")
        yield from _on_named_columns(item, default_id, kind, columns, bound=bound, **rest)


def _wrong_implementation(item: Item, kind: Kind, values: Mapping[str, Any]) -> Iterator[Problem]:
    keys = {"rule", "columns", "unit", *OPERATORS} | ({"zone"} if kind == "hour_in_zone" else set())
    for key in sorted(set(values) - keys, key=str):
        yield item.problem(str(key), "unknown key", did_you_mean(str(key), keys))
    columns, (least, most) = values.get("columns"), CUSTOM[kind]
    if not isinstance(columns, list) or not least <= len(columns) <= (most or len(columns)):
        required = "two columns" if most == 2 else "one column" if most == 1 else "two columns or more"
        fix = "write [a]" if most == 1 else "write [a, b]"
        yield item.problem("columns", f"must name {required}", fix, columns)
    if "zone" in keys and not _is_zone(values.get("zone")):
        fix = "write an IANA name such as America/New_York"
        yield item.problem("zone", "unknown time zone", fix, values.get("zone"))


def _on_named_columns(
    item: Item, default_id: str, kind: Kind, columns: tuple[Any, ...], **parameters: Any
) -> RulesOrProblems:
    """A rule whose columns were written by hand, so they may be missing or misspelled."""
    unknown = [name for name in columns if name not in item.names]
    for name in unknown:
        yield item.problem("", "names a column that is not declared", did_you_mean(str(name), item.names), name)
    if not columns:
        yield item.problem("arguments", "name no columns", "write arguments: {properties: [a, b]}")
    elif not unknown:
        yield item.rule(default_id, kind, columns, **parameters)


def _is_zone(name: Any) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, AttributeError, OSError):
        return False
    return True
