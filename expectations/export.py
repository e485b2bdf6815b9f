"""A contract as a suite of Great Expectations that judges plain rows, for tools that know nothing of this project.

The engines' own suites (suite.py) judge frames that are derived from the rows. This one names the table's own
columns, so that it holds on pandas, Spark or SQL; what no expectation on them counts as the rule does is left out by
name. Great Expectations measures `mostly` over values that are not null and a rule's share is one of all rows, so a
bound other than "no row" is exported for nulls and the number of rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainworthy.expectations.imported import import_great_expectations
from trainworthy.expectations.suite import gx_expectations
from trainworthy.lifecycle.contract.literals import as_instant
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.rule import NO_ROW, Kind, Rule, within

SEVERITIES = {"error": "critical", "warning": "warning", "info": "info"}
# Each names what Great Expectations lacks.
NOT_HELD: Mapping[Kind, str] = {
    "hour_in_zone": "it knows no hour of day in a time zone",
    "null_together": "it knows no columns that are null together",
    "references": "it knows no keys of another table",
    "distribution": "it compares with no reference by shares of rows",
}
# A rule over a column without values holds, and so does each of these; a comparison with null says nothing.
_SKIP = "either_value_is_missing"
# What makes a share one that lies above another: less than one row of any table that fits a machine.
_ABOVE = 1e-10


@dataclass(frozen=True)
class Exported:
    """The suite as JSON-able values, and by id the rules that it lacks, each with the reason."""

    suite: dict[str, Any]
    left_out: dict[str, str]


class _UnheldError(Exception):
    """No expectation counts as the rule does; the message says why."""


def export(contract: Contract) -> Exported:
    """All rules of the contract that Great Expectations holds on the table's own columns.

    `great_expectations.ExpectationSuite(**exported.suite)` makes the suite of it; `meta["rule"]` is a rule's id.
    """
    import_great_expectations()
    import great_expectations as gx

    logical = {column.name: column.logical_type for column in contract.columns}
    expectations, left_out = list[Any](), dict[str, str]()
    for rule in contract.rules:
        try:
            expectations += _of(rule, logical)
        except _UnheldError as reason:
            left_out[rule.id] = str(reason)
    meta = {"contract": contract.name, "contract_version": contract.version, "left_out": left_out}
    return Exported(
        gx.ExpectationSuite(name=contract.name, expectations=expectations, meta=meta).to_json_dict(), left_out
    )


def _of(rule: Rule, logical: Mapping[str, str]) -> list[Any]:
    gxe = gx_expectations()
    if rule.kind in NOT_HELD:
        raise _UnheldError(NOT_HELD[rule.kind])
    common = {"meta": {"rule": rule.id}, "severity": SEVERITIES[rule.severity]}
    if rule.kind == "row_count":
        return [gxe.ExpectTableRowCountToBeBetween(**_rows(rule), **common)]
    if rule.kind == "type":
        # The names of types differ between pandas, Spark and SQL.
        return [gxe.ExpectColumnToExist(column=rule.columns[0], **common)]
    if rule.kind == "nulls":
        return [gxe.ExpectColumnValuesToNotBeNull(column=rule.columns[0], mostly=_least_known(rule), **common)]
    if not _allows_no_row(rule):
        raise _UnheldError("its share of rows counts nulls, and mostly of Great Expectations does not")
    return _HELD[rule.kind](rule, [logical[name] for name in rule.columns], common)


def _allows_no_row(rule: Rule) -> bool:
    """True if one bad row among many breaks the rule, and none does not."""
    bound = rule.parameters.get("bound", NO_ROW)
    return within(bound, 0, 10**9) and not within(bound, 1, 10**9)


def _rows(rule: Rule) -> dict[str, int]:
    """The least and greatest number of rows."""
    bound = rule.parameters["bound"]
    value, operator = bound["value"], bound["operator"]
    if bound["unit"] == "rows":
        match operator:
            case "mustBe":
                return {"min_value": value, "max_value": value}
            case "mustBeGreaterThan":
                return {"min_value": int(value) + 1}
            case "mustBeGreaterOrEqualTo":
                return {"min_value": value}
            case "mustBeLessThan":
                return {"max_value": int(value) - 1}
            case "mustBeLessOrEqualTo":
                return {"max_value": value}
            case "mustBeBetween":
                return {"min_value": value[0], "max_value": value[1]}
    raise _UnheldError(f"it knows no {operator} {value} {bound['unit']}")


def _least_known(rule: Rule) -> float:
    """The least share of rows that are not null, which is counted over all rows here."""
    bound = rule.parameters.get("bound", NO_ROW)
    if _allows_no_row(rule):
        return 1.0
    if bound["unit"] == "percent" and bound["operator"] == "mustBeLessOrEqualTo":
        return 1 - bound["value"] / 100
    if bound["unit"] == "percent" and bound["operator"] == "mustBeLessThan":
        return min(1.0, 1 - bound["value"] / 100 + _ABOVE)
    raise _UnheldError(f"it knows no {bound['operator']} {bound['value']} {bound['unit']} of nulls")


def _missing(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    values, column = rule.parameters["values"], rule.columns[0]
    checks = [gxe.ExpectColumnValuesToNotBeNull(column=column, **common)] if None in values else []
    if listed := _plain([value for value in values if value is not None], logical[0]):
        checks.append(gxe.ExpectColumnValuesToNotBeInSet(column=column, value_set=listed, **common))
    return checks


def _allowed(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    if not (listed := _plain(rule.parameters["values"], logical[0])):
        raise _UnheldError("it refuses an empty list of values")
    return [gxe.ExpectColumnValuesToBeInSet(column=rule.columns[0], value_set=listed, **common)]


def _plain(values: Sequence[Any], logical: str) -> list[Any]:
    """The values that a column of the logical type can hold; 1 is no truth value, and "1" no number."""
    if logical in ("date", "timestamp"):
        raise _UnheldError("its lists hold no instants")
    kinds: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,)}
    python_types = kinds.get(logical, (int, float))
    return [
        value
        for value in values
        if isinstance(value, python_types) and (logical == "boolean" or not isinstance(value, bool))
    ]


def _range(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    if logical[0] == "date":
        raise _UnheldError("a date is a text, a date or an instant, as its tool reads it")
    read: Callable[[Any], Any] = as_instant if logical[0] == "timestamp" else lambda value: value
    limits = {name: read(value) for name, value in rule.parameters.items() if "minimum" in name or "maximum" in name}
    return [
        gxe.ExpectColumnValuesToBeBetween(
            column=rule.columns[0],
            min_value=limits.get("minimum", limits.get("exclusive_minimum")),
            max_value=limits.get("maximum", limits.get("exclusive_maximum")),
            strict_min="exclusive_minimum" in limits,
            strict_max="exclusive_maximum" in limits,
            **common,
        )
    ]


def _length(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    limits = {"min_value": rule.parameters.get("minimum"), "max_value": rule.parameters.get("maximum")}
    return [gxe.ExpectColumnValueLengthsToBeBetween(column=rule.columns[0], **limits, **common)]


def _pattern(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    return [gxe.ExpectColumnValuesToMatchRegex(column=rule.columns[0], regex=rule.parameters["pattern"], **common)]


def _unique(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    if len(rule.columns) == 1:
        return [gxe.ExpectColumnValuesToBeUnique(column=rule.columns[0], **common)]
    columns = list(rule.columns)
    return [gxe.ExpectCompoundColumnsToBeUnique(column_list=columns, ignore_row_if="never", **common)]


def _less_or_equal(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    low, high = rule.columns
    pair = {"column_A": high, "column_B": low, "or_equal": True, "ignore_row_if": _SKIP}
    return [gxe.ExpectColumnPairValuesAToBeGreaterThanB(**pair, **common)]


def _equal(rule: Rule, logical: Sequence[str], common: dict[str, Any]) -> list[Any]:
    gxe = gx_expectations()
    first, second = rule.columns
    return [gxe.ExpectColumnPairValuesToBeEqual(column_A=first, column_B=second, ignore_row_if=_SKIP, **common)]


_HELD: Mapping[str, Callable[[Rule, Sequence[str], dict[str, Any]], list[Any]]] = {
    "missing": _missing, "allowed": _allowed, "range": _range, "length": _length, "pattern": _pattern,
    "unique": _unique, "less_or_equal": _less_or_equal, "equal": _equal,
}  # fmt: skip
