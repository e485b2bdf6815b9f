"""Compiles rules into Great Expectations: one expectation a rule, grouped by the frame that it is judged on.

Great Expectations hashes each frame twice and copies it for every mask, so a frame holds only the columns of its
rules: with 66 columns, one frame for all would make each copy 66 columns wide. Three kinds are judged on a derived
frame, so that plain expectations suffice: types (their names in one row), values that mean missing (made null), and
the hour of day in a time zone.

What Great Expectations counts decides, its own `success` does not: it knows no bound in rows, and a rule over nulls
only or over an empty table succeeds. The suite lives in memory: stored suites carry random ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lifecycle.contract.rule import Rule

if TYPE_CHECKING:
    import pandas as pd

MISSING = "missing"


@dataclass(frozen=True)
class Group:
    """Rules that are judged on one frame; `build` makes it from the dataset's rows and may raise."""

    rules: tuple[Rule, ...]
    build: Callable[[pd.DataFrame], pd.DataFrame]


def groups(rules: Iterable[Rule]) -> Iterator[Group]:
    """Each rule once, with the others that share its frame."""
    shared: dict[tuple[str, ...], list[Rule]] = {}
    for rule in rules:
        derived = rule.kind == "hour_in_zone" or _null_means_missing(rule)
        key = (rule.kind,) if rule.kind == "type" else ("rule", rule.id) if derived else ("columns", *rule.columns)
        shared.setdefault(key, []).append(rule)
    for members in shared.values():
        yield Group(tuple(members), lambda rows, members=tuple(members): _frame(rows, members))


def _frame(rows: pd.DataFrame, rules: tuple[Rule, ...]) -> pd.DataFrame:
    first = rules[0]
    if first.kind == "type":
        return _type_names(rows, [rule.columns[0] for rule in rules])
    if first.kind == "hour_in_zone":
        return _local_hours(rows, *first.columns, first.parameters["zone"])
    if _null_means_missing(first):
        column = rows[first.columns[0]]
        return column.mask(column.isin(_not_null(first.parameters["values"]))).to_frame()
    return rows[list(first.columns)] if first.columns else rows.iloc[:, :1]


def _null_means_missing(rule: Rule) -> bool:
    return rule.kind == "missing" and None in rule.parameters["values"]


def _not_null(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _local_hours(rows: pd.DataFrame, instant: str, hour: str, zone: str) -> pd.DataFrame:
    import pandas as pd

    if getattr(rows[instant].dtype, "tz", None) is None:
        raise ValueError(f"{instant} has no time zone, so its hour in {zone} is unknown")
    return pd.DataFrame({instant: rows[instant].dt.tz_convert(zone).dt.hour, hour: rows[hour]})


def _type_names(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """One row that holds, for each column, the logical type of its values, or `missing`."""
    import pandas as pd

    return pd.DataFrame({name: [logical_type(rows[name]) if name in rows else MISSING] for name in columns})


def logical_type(values: pd.Series) -> str:
    """The standard's logical type of a column, or pandas' name of it if there is none.

    A `date` is a day without a time of day: Python dates, or timestamps without a zone that are all at midnight.
    """
    import pandas as pd
    from pandas.api import types

    if types.is_bool_dtype(values.dtype):
        return "boolean"
    if types.is_integer_dtype(values.dtype):
        return "integer"
    if types.is_float_dtype(values.dtype):
        return "number"
    if types.is_datetime64_any_dtype(values.dtype):
        naive = getattr(values.dtype, "tz", None) is None
        return "date" if naive and bool((values.dropna().dt.normalize() == values.dropna()).all()) else "timestamp"
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    return {"datetime": "timestamp"}.get(inferred, inferred)


# What a column may hold for a declared type: an integer is a number, a midnight is a moment in time.
_ACCEPTED = {"number": ["number", "integer"], "timestamp": ["timestamp", "date"]}


def expectation(rule: Rule) -> Any:
    """The rule as a Great Expectations expectation on its group's frame, marked with the rule's id."""
    import great_expectations.expectations as gxe

    values, columns = rule.parameters, rule.columns
    meta: dict[str, Any] = {"rule": rule.id}
    match rule.kind:
        case "row_count":
            return gxe.ExpectTableRowCountToBeBetween(min_value=0, meta=meta)
        case "type":
            accepted = _ACCEPTED.get(values["logical_type"], [values["logical_type"]])
            return gxe.ExpectColumnValuesToBeInSet(column=columns[0], value_set=accepted, meta=meta)
        case "unique" if len(columns) > 1:
            return gxe.ExpectCompoundColumnsToBeUnique(column_list=list(columns), ignore_row_if="never", meta=meta)
        case "less_or_equal":
            return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
                column_A=columns[1], column_B=columns[0], or_equal=True, ignore_row_if=_SKIP, meta=meta
            )
        case "equal" | "hour_in_zone":
            return gxe.ExpectColumnPairValuesToBeEqual(
                column_A=columns[0], column_B=columns[1], ignore_row_if=_SKIP, meta=meta
            )
    return _of_one_column(rule, columns[0], values, meta)


# The rule's null rules judge nulls; a comparison with one says nothing.
_SKIP = "either_value_is_missing"


def _of_one_column(rule: Rule, column: str, values: Mapping[str, Any], meta: dict[str, Any]) -> Any:
    import great_expectations.expectations as gxe

    match rule.kind:
        case "nulls":
            return gxe.ExpectColumnValuesToNotBeNull(column=column, meta=meta)
        case "missing" if _null_means_missing(rule):
            return gxe.ExpectColumnValuesToNotBeNull(column=column, meta=meta)
        case "missing":
            return gxe.ExpectColumnValuesToNotBeInSet(column=column, value_set=values["values"], meta=meta)
        case "allowed":
            return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=values["values"], meta=meta)
        case "unique":
            return gxe.ExpectColumnValuesToBeUnique(column=column, meta=meta)
        case "pattern":
            return gxe.ExpectColumnValuesToMatchRegex(column=column, regex=values["pattern"], meta=meta)
        case "length":
            return gxe.ExpectColumnValueLengthsToBeBetween(
                column=column, min_value=values.get("minimum"), max_value=values.get("maximum"), meta=meta
            )
        case "range":
            return _range(column, values, meta)
    raise AssertionError(rule)


def _range(column: str, values: Mapping[str, Any], meta: dict[str, Any]) -> Any:
    import great_expectations.expectations as gxe

    return gxe.ExpectColumnValuesToBeBetween(
        column=column,
        min_value=_limit(values.get("minimum", values.get("exclusive_minimum"))),
        max_value=_limit(values.get("maximum", values.get("exclusive_maximum"))),
        strict_min="exclusive_minimum" in values,
        strict_max="exclusive_maximum" in values,
        meta=meta,
    )


def _limit(value: Any) -> Any:
    """A number as it is; the text of a date or time as an instant."""
    from datetime import datetime

    return datetime.fromisoformat(value) if isinstance(value, str) else value
