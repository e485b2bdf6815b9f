"""Compiling a table into rules, and the bound that decides."""

import pytest

from trainworthy.lifecycle.contract.rule import within
from trainworthy.lifecycle.contract.rules import compile_rules, primary_key


def compiled(*properties, quality=()):
    key = {"name": "id", "logicalType": "integer", "primaryKey": True}
    rules, problems = compile_rules({"name": "t", "properties": [key, *properties], "quality": list(quality)})
    assert problems == []
    return {rule.id: rule for rule in rules}


def number(**rest):
    return {"name": "x", "logicalType": "number", **rest}


@pytest.mark.parametrize(
    ("operator", "value", "good", "bad"),
    [
        ("mustBe", 2, [2], [1, 3]),
        ("mustNotBe", 2, [1, 3], [2]),
        ("mustBeGreaterThan", 2, [3], [2]),
        ("mustBeGreaterOrEqualTo", 2, [2], [1]),
        ("mustBeLessThan", 2, [1], [2]),
        ("mustBeLessOrEqualTo", 2, [2], [3]),
        ("mustBeBetween", [2, 4], [2, 4], [1, 5]),
        ("mustNotBeBetween", [2, 4], [1, 5], [2, 4]),
    ],
)
def test_within_each_operator_meets_its_edges(operator, value, good, bad):
    bound = {"operator": operator, "value": value, "unit": "rows"}
    assert all(within(bound, count, 10) for count in good)
    assert not any(within(bound, count, 10) for count in bad)


def test_within_percent_is_exact_at_the_edge_and_false_without_rows():
    bound = {"operator": "mustBeLessOrEqualTo", "value": 29, "unit": "percent"}
    assert within(bound, 29, 100)
    assert not within(bound, 30, 100)
    assert not within(bound, 0, 0)


def test_compile_rules_bare_column_must_exist_and_not_be_all_null():
    rules = compiled(number())
    assert rules["not_empty"].parameters["bound"]["operator"] == "mustBeGreaterOrEqualTo"
    assert rules["x.type"].parameters["logical_type"] == "number"
    bound = {"operator": "mustBeLessThan", "value": 100, "unit": "percent"}
    assert rules["x.not_all_null"].parameters["bound"] == bound


def test_compile_rules_null_bound_replaces_the_rule_against_all_null():
    bound = {"metric": "nullValues", "mustBeLessOrEqualTo": 100, "unit": "percent"}
    assert "x.not_all_null" not in compiled(number(quality=[bound]))
    assert "x.not_all_null" not in compiled(number(required=True))
    for weak in ({"severity": "warning"}, {"mustBeGreaterThan": 1}):
        item = {key: value for key, value in bound.items() if key != "mustBeLessOrEqualTo" or "severity" in weak}
        assert "x.not_all_null" in compiled(number(quality=[{**item, **weak}]))


def test_compile_rules_options_and_metrics_give_their_kinds():
    text = {
        "name": "s",
        "logicalType": "string",
        "unique": True,
        "logicalTypeOptions": {"minLength": 1, "maxLength": 3, "pattern": "^a"},
        "quality": [
            {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": [None, ""]}},
            {"metric": "invalidValues", "mustBeLessThan": 5, "unit": "percent", "arguments": {"validValues": ["a"]}},
            {"metric": "duplicateValues", "mustBe": 0, "severity": "warning"},
            {"type": "text", "description": "words only"},
        ],
    }
    rules = compiled(
        text,
        number(logicalTypeOptions={"minimum": 0, "exclusiveMaximum": 1}),
        quality=[
            {"metric": "rowCount", "mustBeBetween": [1, 9], "severity": "info"},
            {"metric": "duplicateValues", "mustBe": 0, "arguments": {"properties": ["s", "x"]}},
            {"id": "pair", "type": "custom", "engine": "trainworthy",
             "implementation": {"rule": "less_or_equal", "columns": ["id", "x"]}},
        ],
    )  # fmt: skip
    kinds = {identifier: rule.kind for identifier, rule in rules.items()}
    assert kinds["s.length"] == "length"
    assert kinds["s.pattern"] == "pattern"
    assert kinds["s.missing"] == "missing"
    assert kinds["s.allowed"] == "allowed"
    assert rules["s.unique"].severity == "warning"
    assert rules["s.unique_2"].severity == "error"
    assert "s.not_all_null" not in kinds
    assert rules["x.range"].parameters["exclusive_maximum"] == 1
    assert rules["row_count"].severity == "info"
    assert rules["s+x.unique"].columns == ("s", "x")
    assert rules["pair"].columns == ("id", "x")


def test_primary_key_follows_its_positions():
    properties = [
        {"name": "a", "primaryKey": True, "primaryKeyPosition": 2},
        {"name": "b"},
        {"name": "c", "primaryKey": True, "primaryKeyPosition": 1},
    ]
    assert primary_key({"properties": properties}) == ("c", "a")
