"""What a rule is, and the one function that decides whether it holds.

A rule counts the rows that break it (or, for row_count, the rows there are), and its bound judges the count; so
`within` decides for every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from trainworthy.lifecycle.protocol.checks import Severity
from trainworthy.lifecycle.spec.frozen import Frozen

Kind = Literal[
    "type", "nulls", "missing", "range", "length", "pattern", "allowed", "unique", "row_count",
    "less_or_equal", "equal", "hour_in_zone", "null_together", "references", "distribution",
]  # fmt: skip
LogicalType = Literal["string", "integer", "number", "boolean", "date", "timestamp"]

NO_ROW = {"operator": "mustBe", "value": 0, "unit": "rows"}
NOT_EVERY_ROW = {"operator": "mustBeLessThan", "value": 100, "unit": "percent"}
AT_LEAST_ONE_ROW = {"operator": "mustBeGreaterOrEqualTo", "value": 1, "unit": "rows"}
# In percent of the rows; as many as a drafted contract lets have a new value.
MOST_EXCEPTIONS = 5
_AT_MOST = ("mustBe", "mustBeLessThan", "mustBeLessOrEqualTo")


class Rule(Frozen):
    """One thing that must hold.

    `parameters["bound"]` is `{operator, value, unit}` with the standard's operators and unit rows or percent; the
    other parameters belong to the kind:

    type            logical_type                    the column exists and holds this type
    nulls           -                               counts null rows
    missing         values                          counts rows with one of these values (None: null)
    range, length   minimum, maximum, exclusive_…   counts values outside; nulls are not counted, here and below
    pattern         pattern                         counts values in which the expression is not found
    allowed         values                          counts values not listed
    unique          -                               counts rows that share their values with another row; of several
                                                    columns a null is a value like any other
    row_count       -                               counts all rows
    less_or_equal   -                               counts rows with first column > second
    equal           -                               counts rows with first column != second
    hour_in_zone    zone                            counts rows where the first column's hour of day in the zone is
                                                    not the second column
    null_together   -                               counts rows where some of the columns are null and others are not
    references      keys                            counts rows whose values, none null, are not one of the `keys`
                                                    (rows of another table, each as long as `columns`)
    distribution    edges or values, counts         counts the rows that would have to change their bin for the shares
                                                    to be the reference's (`surplus`)

    A `distribution` has `counts` of the reference's rows: with `edges`, ascending, a value's bin is the number of
    edges that are not above it; with `values` it is the value's place, and behind them all others share a bin. The
    last bin is that of nulls. In a column of floats a NaN is a null, for every kind.

    A value of `values` and `keys` equals only one of the column's own type (literals.py); an expression is found as by
    Python's `re.search`; an integer is compared with a column of floats as a float.
    """

    id: str
    kind: Kind
    columns: tuple[str, ...]
    parameters: dict[str, Any]
    severity: Severity = "error"

    @property
    def stops_at_one_row(self) -> bool:
        """Whether a single row that breaks it stops the snapshot."""
        return self.severity == "error" and self.parameters.get("bound") == NO_ROW

    @property
    def stops_beyond_few(self) -> bool:
        """Whether so few rows may break it that what breaks it is an exception: at most 5 percent, as in drafts."""
        bound = self.parameters.get("bound") or {}
        few = bound.get("unit") == "percent" and bound.get("operator") in _AT_MOST and bound["value"] <= MOST_EXCEPTIONS
        return self.severity == "error" and (few or bound == NO_ROW)


def make_rule(
    identifier: str, kind: Kind, columns: tuple[str, ...], severity: Severity = "error", **parameters: Any
) -> Rule:
    """A rule from its parts, parameters by name."""
    return Rule(id=identifier, kind=kind, columns=columns, parameters=parameters, severity=severity)


def surplus(counts: Sequence[int], reference: Sequence[int]) -> int:
    """Rows that would have to change their bin for the shares of `counts` to be those of `reference`.

    Half the sum of absolute differences of shares (the total variation distance) times the rows, in whole numbers, so
    that every engine gives the same.
    """
    rows, all_reference = sum(counts), sum(reference)
    above = (max(0, own * all_reference - other * rows) for own, other in zip(counts, reference, strict=True))
    return sum(above) // all_reference


def within(bound: Mapping[str, Any], count: int, rows: int) -> bool:
    """True if `count` of `rows` rows meets the bound; of no rows a share is never met."""
    if bound["unit"] == "percent" and rows == 0:
        return False
    # Multiplied first: 29 of 100 rows is exactly 29.0 percent, but 100 * (29 / 100) is 28.999999999999996.
    observed = 100 * count / rows if bound["unit"] == "percent" else count
    value = bound["value"]
    match bound["operator"]:
        case "mustBe":
            return observed == value
        case "mustNotBe":
            return observed != value
        case "mustBeGreaterThan":
            return observed > value
        case "mustBeGreaterOrEqualTo":
            return observed >= value
        case "mustBeLessThan":
            return observed < value
        case "mustBeLessOrEqualTo":
            return observed <= value
        case "mustBeBetween":
            return value[0] <= observed <= value[1]
        case "mustNotBeBetween":
            return not value[0] <= observed <= value[1]
    raise AssertionError(bound)


def never_null(rules: Iterable[Rule]) -> frozenset[str]:
    """Columns in which no row may be null: one that is stops the snapshot."""
    return frozenset(name for rule in rules if rule.kind == "nulls" and rule.stops_at_one_row for name in rule.columns)
