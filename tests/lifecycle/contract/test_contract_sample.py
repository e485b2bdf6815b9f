"""Rows made from a contract alone keep it, and hold what a model meets: nulls, and texts that training did not see."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from trainworthy.expectations.validate import validate_frame
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule
from trainworthy.lifecycle.contract.sample import FIT_ROWS, ROWS, sample_rows, text_like

ROOT = Path(__file__).parents[3]
CONTRACTS = {"toy": ROOT / "tests" / "toy" / "use_cases" / "toy", "flights": ROOT / "use_cases" / "flight_delays"}
# Rules of the whole table, or across columns, are not kept: a sample is a few rows, column by column.
OF_COLUMNS = ("type", "range", "length", "pattern", "allowed")


@pytest.mark.parametrize("name", CONTRACTS)
def test_sample_keeps_the_rules_of_each_column(name):
    contract = load_contract(CONTRACTS[name] / "contract.yaml")
    rows = sample_rows(contract, tuple(column.name for column in contract.columns))
    assert len(rows) == ROWS
    results = [result for result in validate_frame(rows, contract) if result.rule.kind in OF_COLUMNS]
    assert len(results) > 5
    assert [result.rule.id for result in results if result.status != "pass"] == []


@pytest.mark.parametrize("name", CONTRACTS)
def test_sample_is_null_where_the_contract_lets_it_and_nowhere_else(name):
    contract = load_contract(CONTRACTS[name] / "contract.yaml")
    rows = sample_rows(contract, tuple(column.name for column in contract.columns))
    required = {rule.columns[0] for rule in contract.rules if rule.id.endswith(".required")}
    assert {column for column in rows if rows[column].isna().any()} == set(rows.columns) - required
    assert set(rows.columns[rows.iloc[-1].isna()]) == set(rows.columns) - required


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 2}, {1}),
        ({"exclusiveMinimum": 0.5, "exclusiveMaximum": 2.5}, {1, 2}),
        ({"minimum": 0, "exclusiveMaximum": 2}, {0, 1}),
        ({"minimum": 0, "maximum": 1}, {0, 1}),
        ({"minimum": 0.5, "maximum": 1.5}, {1}),
        ({"minimum": 7, "maximum": 7}, {7}),
    ],
)
def test_sample_whole_numbers_keep_their_limits(tmp_path, limits, wanted):
    document = yaml.safe_load((CONTRACTS["toy"] / "contract.yaml").read_text())
    (column,) = [column for column in document["schema"][0]["properties"] if column["name"] == "row_id"]
    column["logicalTypeOptions"] = limits
    (tmp_path / "contract.yaml").write_text(yaml.safe_dump(document))
    rows = sample_rows(load_contract(tmp_path / "contract.yaml"), ("row_id",))
    assert set(rows["row_id"]) == wanted


def test_sample_later_rows_hold_a_text_that_the_first_do_not():
    contract = load_contract(CONTRACTS["toy"] / "contract.yaml")
    shops = sample_rows(contract, ("shop",))["shop"]
    assert set(shops[FIT_ROWS:]) - set(shops[:FIT_ROWS]) == {"west"}


def test_sample_is_the_same_each_time():
    contract = load_contract(CONTRACTS["flights"] / "contract.yaml")
    pd.testing.assert_frame_equal(*(sample_rows(contract, contract.feature_columns) for _ in range(2)))


@pytest.mark.parametrize(
    "pattern",
    ["^[A-Z]{3}$", r"^\d{2}-\w+$", "^(ab|cd)?x*.y$", "[^a-f]+", "^N[0-9]{1,5}[A-Z]{0,2}$", r"^(?:red|green)\s\d$", ""],
)
def test_sample_text_follows_its_pattern(pattern):
    generator = np.random.default_rng(0)
    assert all(re.search(pattern, text_like(pattern, generator)) for _ in range(20))


@pytest.mark.parametrize("pattern", [r"^(a)\1$", "(?<=x)y$", "(?=z)$"])
def test_sample_text_of_a_pattern_that_cannot_be_followed_is_still_a_text(pattern):
    assert text_like(pattern, np.random.default_rng(0))


def judged(columns, *rules, names=("key",)):
    """The status of each rule on a sample of columns whose values, of `names` together, may not repeat."""
    label = Label(name="late", version=1, column=columns[0].name, greater_than=0.0)
    every = (*rules, make_rule("unique", "unique", names, bound=NO_ROW))
    contract = Contract(name="t", version="1", columns=columns, rules=every, label=label, primary_key=names)
    rows = sample_rows(contract, tuple(column.name for column in columns), rows=400)
    return {result.rule.id: result.status for result in validate_frame(rows, contract)}


def column(name, kind):
    return Column(name=name, logical_type=kind, role="key")


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("integer", make_rule("range", "range", ("key",), bound=NO_ROW, minimum=1, maximum=400)),
        ("number", make_rule("range", "range", ("key",), bound=NO_ROW, minimum=0, maximum=1)),
        ("string", make_rule("pattern", "pattern", ("key",), bound=NO_ROW, pattern="^P[0-9]{4}$")),
        ("string", make_rule("length", "length", ("key",), bound=NO_ROW, minimum=4, maximum=4)),
        ("string", make_rule("allowed", "allowed", ("key",), bound=NO_ROW, values=[f"v{n}" for n in range(400)])),
        ("timestamp", make_rule("nulls", "nulls", ("key",), bound=NO_ROW)),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_sample_repeats_no_key_that_may_not_repeat(kind, limits):
    assert set(judged((column("key", kind),), limits).values()) == {"pass"}


def test_sample_repeats_no_key_of_several_columns():
    names = ("shop", "day", "number")
    kinds = zip(names, ("string", "date", "integer"), strict=True)
    needed = [make_rule(f"{name}.nulls", "nulls", (name,), bound=NO_ROW) for name in names]
    listed = make_rule("allowed", "allowed", ("shop",), bound=NO_ROW, values=["north", "south"])
    few = make_rule("range", "range", ("day",), bound=NO_ROW, minimum="2024-01-01", maximum="2024-01-09")
    many = make_rule("many", "range", ("number",), bound=NO_ROW, minimum=0, maximum=999)
    found = judged(tuple(column(*each) for each in kinds), *needed, listed, few, many, names=names)
    assert set(found.values()) == {"pass"}


def test_sample_repeats_a_key_of_too_few_values_and_keeps_its_other_rules():
    few = make_rule("range", "range", ("key",), bound=NO_ROW, minimum=1, maximum=9)
    assert judged((column("key", "integer"),), few) == {"range": "pass", "unique": "fail"}
