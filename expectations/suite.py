"""Compiles rules into Great Expectations: one expectation a rule, grouped by the frame that it is judged on.

Great Expectations hashes each frame twice and copies it for every mask, so a frame holds only the columns of its
rules: with 66 columns, one frame for all would make each copy 66 columns wide. Some kinds are judged on a derived
frame, so that plain expectations suffice: types (their names in one row), values that mean missing (made null), the
hour of day in a time zone, and limits of instants (as microseconds since 1970: comparing 336,776 timestamps takes
1.7 s, numbers 0.02 s).

What Great Expectations counts decides, its own `success` does not: it knows no bound in rows, and a rule over nulls
only or over an empty table succeeds. The suite lives in memory: stored suites carry random ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lifecycle.contract.logical_type import logical_type
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
        derived = rule.kind == "hour_in_zone" or _null_means_missing(rule) or _is_about_time(rule)
        key = (rule.kind,) if rule.kind == "type" else ("rule", rule.id) if derived else ("columns", *rule.columns)
        shared.setdefault(key, []).append(rule)
    for members in shared.values():
        yield Group(tuple(members), lambda rows, members=tuple(members): _frame(rows, members))


def _frame(rows: pd.DataFrame, rules: tuple[Rule, ...]) -> pd.DataFrame:
    first = rules[0]
    if first.kind == "type":
        return _type_names(rows, [rule.columns[0] for rule in rules])
    if first.kind == "hour_in_zone":
        instant, hour = first.columns
        return _local_hours(rows, instant, hour, first.parameters["zone"])
    if _is_about_time(first):
        return _microseconds(rows[first.columns[0]], first)
    if _null_means_missing(first):
        column = rows[first.columns[0]]
        return column.mask(column.isin(_not_null(first.parameters["values"]))).to_frame()
    return rows[list(first.columns)] if first.columns else rows.iloc[:, :1]


def _null_means_missing(rule: Rule) -> bool:
    return rule.kind == "missing" and None in rule.parameters["values"]


def _is_about_time(rule: Rule) -> bool:
    return rule.kind == "range" and any(isinstance(value, str) for value in rule.parameters.values())


def _microseconds(values: pd.Series, rule: Rule) -> pd.DataFrame:
    """The instants as float64 microseconds since 1970, exact up to the year 2255; null stays null."""
    import pandas as pd

    instants = pd.to_datetime(values) if values.dtype == object else values
    if instants.dtype.kind != "M":
        raise ValueError(f"{values.name} holds {instants.dtype}, so it can't be compared with an instant")
    aware = getattr(instants.dtype, "tz", None) is not None
    limits = [value for value in rule.parameters.values() if isinstance(value, str)]
    if any((datetime.fromisoformat(value).tzinfo is not None) != aware for value in limits):
        has, need = ("a", "one") if aware else ("no", "none")
        raise ValueError(f"{values.name} has {has} time zone, so its limits need {need}: {', '.join(limits)}")
    numbers = instants.dt.as_unit("us").astype("int64").astype("float64")
    return numbers.where(instants.notna()).to_frame()


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


def _expectations() -> Any:
    """Great Expectations' own expectations; typed Any, as its package marks none of them as exported."""
    import great_expectations.expectations as gxe

    return gxe


# What a column may hold for a declared type: an integer is a number, a midnight is a moment in time.
ACCEPTED = {"number": ["number", "integer"], "timestamp": ["timestamp", "date"]}


def expectation(rule: Rule) -> Any:
    """The rule as a Great Expectations expectation on its group's frame, marked with the rule's id."""
    gxe = _expectations()

    values, columns = rule.parameters, list(rule.columns)
    meta: dict[str, Any] = {"rule": rule.id}
    match rule.kind:
        case "row_count":
            return gxe.ExpectTableRowCountToBeBetween(min_value=0, meta=meta)
        case "type":
            accepted = ACCEPTED.get(values["logical_type"], [values["logical_type"]])
            return gxe.ExpectColumnValuesToBeInSet(column=columns[0], value_set=accepted, meta=meta)
        case "unique" if len(columns) > 1:
            return gxe.ExpectCompoundColumnsToBeUnique(column_list=columns, ignore_row_if="never", meta=meta)
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
    gxe = _expectations()

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
    gxe = _expectations()

    return gxe.ExpectColumnValuesToBeBetween(
        column=column,
        min_value=_limit(values.get("minimum", values.get("exclusive_minimum"))),
        max_value=_limit(values.get("maximum", values.get("exclusive_maximum"))),
        strict_min="exclusive_minimum" in values,
        strict_max="exclusive_maximum" in values,
        meta=meta,
    )


def _limit(value: Any) -> Any:
    """A number as it is; the text of a date or time as microseconds since 1970."""
    if not isinstance(value, str):
        return value
    instant = datetime.fromisoformat(value)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1e6
