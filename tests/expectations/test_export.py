"""An exported suite judges plain rows as our engine does: a healthy table, and a fault for each rule it holds."""

import json

import numpy as np
import pandas as pd
import pytest

from trainworthy.expectations.export import export
from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.rules import compile_rules, primary_key
from trainworthy.pipeline.cli import main

ROWS = 60


def table():
    few = {"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": 10}
    origins = {"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": ["EWR", "JFK", "LGA"]}}
    some = {"metric": "invalidValues", "unit": "percent", "mustBeLessThan": 5, "arguments": {"validValues": [1, 2]}}
    missing = {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": [None, "n/a"]}}
    pair = {"type": "custom", "engine": "trainworthy"}
    instants = {"minimum": "2013-01-01T05:00:00+00:00", "exclusiveMaximum": "2014-01-01T05:00:00+00:00"}
    return {
        "name": "t",
        "quality": [
            {"metric": "rowCount", "mustBeBetween": [10, 1000]},
            {**pair, "implementation": {"rule": "less_or_equal", "columns": ["low", "high"]}},
            {**pair, "implementation": {"rule": "equal", "columns": ["low", "copy"]}},
            {**pair, "implementation": {"rule": "hour_in_zone", "columns": ["at", "hour"], "zone": "UTC"}},
        ],
        "properties": [
            {"name": "day", "logicalType": "integer", "primaryKey": True},
            {"name": "flight", "logicalType": "integer", "primaryKey": True},
            {"name": "at", "logicalType": "timestamp", "required": True, "logicalTypeOptions": instants},
            {"name": "hour", "logicalType": "integer", "logicalTypeOptions": {"minimum": 0, "maximum": 23}},
            {"name": "low", "logicalType": "number", "logicalTypeOptions": {"exclusiveMinimum": -1}},
            {"name": "high", "logicalType": "number", "quality": [few]},
            {"name": "copy", "logicalType": "number"},
            {"name": "origin", "logicalType": "string", "quality": [origins]},
            {"name": "engines", "logicalType": "integer", "quality": [some]},
            {"name": "tail", "logicalType": "string", "unique": True, "quality": [missing],
             "logicalTypeOptions": {"pattern": "^N[0-9]+$", "minLength": 2, "maxLength": 5}},
        ],
    }  # fmt: skip


def contract():
    values = table()
    rules, problems = compile_rules(values)
    assert problems == []
    columns = [
        Column(name=one["name"], logical_type=one["logicalType"], role="feature") for one in values["properties"]
    ]
    return Contract(
        name="t", version="1", columns=tuple(columns), rules=rules, primary_key=primary_key(values),
        label=Label(name="late", version=1, column="low", greater_than=1.0),
    )  # fmt: skip


@pytest.fixture
def rows():
    at = pd.date_range("2013-01-01T05:00", periods=ROWS, freq="h", tz="UTC")
    low = np.arange(ROWS, dtype=float)
    return pd.DataFrame({
        "day": np.arange(ROWS) // 10, "flight": np.arange(ROWS) % 10, "at": at, "hour": at.hour.astype("int64"),
        "low": low, "high": np.where(np.arange(ROWS) < 6, np.nan, low + 1), "copy": low,
        "origin": np.resize(["EWR", "JFK", "LGA"], ROWS), "engines": np.resize([1, 2], ROWS),
        "tail": [f"N{number}" for number in range(ROWS)],
    })  # fmt: skip


@pytest.fixture(scope="module")
def exported():
    """Through JSON, as a file of it would be read."""
    found = export(contract())
    return json.loads(json.dumps(found.suite)), found.left_out


@pytest.fixture(scope="module")
def batches():
    import great_expectations as gx

    asset = gx.get_context(mode="ephemeral").data_sources.add_pandas("rows").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def broken_by_the_suite(suite, batches, rows):
    import great_expectations as gx

    results = batches.get_batch({"dataframe": rows}).validate(gx.ExpectationSuite(**suite)).results
    return {one.expectation_config.meta["rule"] for one in results if not one.success}


def broken_by_our_engine(rows, folder, left_out):
    rows.to_parquet(folder / "rows.parquet")
    found = polars_engine.validate_files(folder, contract())
    return {one.rule.id for one in found if one.status != "pass" and one.rule.id not in left_out}


def test_rules_that_no_expectation_holds_are_named(exported):
    suite, left_out = exported
    held = {one["meta"]["rule"] for one in suite["expectations"]}
    assert held | left_out.keys() == {rule.id for rule in contract().rules}
    assert not held & left_out.keys()
    kinds = {rule.id: rule.kind for rule in contract().rules}
    assert {kinds[name] for name in left_out} == {"hour_in_zone", "allowed"}
    assert suite["meta"]["left_out"] == left_out


def test_suite_holds_on_healthy_rows(exported, batches, rows, tmp_path):
    assert broken_by_the_suite(exported[0], batches, rows) == broken_by_our_engine(rows, tmp_path, exported[1]) == set()


def put(column, value, places=1):
    def change(rows):
        rows[column] = rows[column].astype(object) if isinstance(value, str) else rows[column]
        rows.loc[: places - 1, column] = value
        return rows

    return change


FAULTS = {
    "fewer rows than there must be": lambda rows: rows.head(5),
    "a row twice": lambda rows: pd.concat([rows, rows.head(1)], ignore_index=True),
    "an instant of the year before": put("at", pd.Timestamp("2012-12-31", tz="UTC")),
    "the first instant that is not allowed": put("at", pd.Timestamp("2014-01-01T05:00", tz="UTC")),
    "a null where there may be none": put("at", pd.NaT),
    "an hour beyond the day": put("hour", 24),
    "a number on an open limit": lambda rows: put("copy", -1.0)(put("low", -1.0)(rows)),
    "one null more than ten in a hundred": put("high", np.nan, places=7),
    "a pair in the wrong order": put("high", -0.5),
    "a copy that differs": put("copy", 0.5),
    "a value that is not listed": put("origin", "SFO"),
    "a text without its pattern": put("tail", "X1"),
    "a text that is too long": put("tail", "N12345"),
    "a text twice": put("tail", "N1"),
    "a word for missing": put("tail", "n/a"),
    "a null that is missing": put("tail", None),
    "a column that is not there": lambda rows: rows.drop(columns="copy"),
    "a column without values": lambda rows: rows.assign(high=np.nan),
}


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS)
def test_suite_breaks_where_our_engine_does(exported, batches, rows, tmp_path, change):
    suite, left_out = exported
    changed = change(rows)
    broken = broken_by_the_suite(suite, batches, changed)
    assert broken
    assert broken == broken_by_our_engine(changed, tmp_path, left_out)


def test_command_writes_a_suite_that_loads_and_leaves_a_file_that_is_there(tmp_path, capsys):
    import great_expectations as gx

    out = tmp_path / "suite.json"
    assert main(["contract", "export", "flight_delays", "--gx", "--out", str(out)]) == 0
    written = out.read_text()
    suite = gx.ExpectationSuite(**json.loads(written))
    assert suite.name == "flight_delays"
    assert "left out: time_hour_is_utc" in capsys.readouterr().err
    assert main(["contract", "export", "flight_delays", "--gx", "--out", str(out)]) != 0
    assert out.read_text() == written
    assert main(["contract", "export", "flight_delays", "--gx", "--out", str(tmp_path / "no" / "suite.json")]) != 0
    assert not (tmp_path / "no").exists()
