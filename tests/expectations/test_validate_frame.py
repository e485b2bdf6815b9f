"""Both engines judge rows: a healthy frame passes, and each rule catches its planted fault."""

import json

import numpy as np
import pandas as pd
import pytest

from trainworthy.expectations import validate as great_expectations
from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.frame import logical_type
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.contract.rules import compile_rules, primary_key

ROWS = 60
ENGINES = {"great_expectations": great_expectations.validate_files, "fused": polars_engine.validate_files}
JUDGE = {}


@pytest.fixture(autouse=True, params=ENGINES)
def engine(request, tmp_path, monkeypatch):
    """Each test is asked of both engines."""

    def validate(frame, contract):
        frame.reset_index(drop=True).to_parquet(tmp_path / "rows.parquet")
        return ENGINES[request.param](tmp_path, contract)

    monkeypatch.setitem(JUDGE, "now", validate)


def validate_frame(frame, contract):
    return JUDGE["now"](frame, contract)


def table():
    """A table with every kind of rule."""
    instant = {"minimum": "2013-01-01T05:00:00+00:00", "exclusiveMaximum": "2014-01-01T05:00:00+00:00"}
    few = {"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": 10}
    missing = {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": [None, "", "n/a"]}}
    placeholder = {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": ["?"]}}
    allowed = {"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": ["EWR", "JFK", "LGA"]}}
    return {
        "name": "t",
        "quality": [
            {"metric": "rowCount", "mustBeBetween": [10, 1000]},
            {"type": "custom", "engine": "trainworthy",
             "implementation": {"rule": "hour_in_zone", "columns": ["at", "hour"], "zone": "America/New_York"}},
            {"type": "custom", "engine": "trainworthy",
             "implementation": {"rule": "less_or_equal", "columns": ["low", "high"]}},
            {"type": "custom", "engine": "trainworthy",
             "implementation": {"rule": "equal", "columns": ["low", "copy"]}},
        ],
        "properties": [
            {"name": "day", "logicalType": "integer", "primaryKey": True},
            {"name": "flight", "logicalType": "integer", "primaryKey": True},
            {"name": "at", "logicalType": "timestamp", "required": True, "logicalTypeOptions": instant},
            {"name": "date", "logicalType": "date", "logicalTypeOptions": {"minimum": "2013-01-01"}},
            {"name": "hour", "logicalType": "integer", "logicalTypeOptions": {"minimum": 0, "maximum": 23}},
            {"name": "low", "logicalType": "number", "logicalTypeOptions": {"exclusiveMinimum": -1}},
            {"name": "high", "logicalType": "number", "quality": [few]},
            {"name": "copy", "logicalType": "number"},
            {"name": "origin", "logicalType": "string", "quality": [allowed]},
            {"name": "tail", "logicalType": "string", "unique": True, "quality": [missing],
             "logicalTypeOptions": {"pattern": "^N[0-9]+$", "minLength": 2, "maxLength": 5}},
            {"name": "model", "logicalType": "string", "quality": [placeholder]},
            {"name": "flag", "logicalType": "boolean"},
            {"name": "secret", "logicalType": "string",
             "quality": [{"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": ["a", "b"]}}]},
        ],
    }  # fmt: skip


def contract(values=None):
    values = values or table()
    rules, problems = compile_rules(values)
    assert problems == []
    columns = [
        Column(name=item["name"], logical_type=item["logicalType"], role="feature", sensitive=item["name"] == "secret")
        for item in values["properties"]
    ]
    label = Label(name="late", version=1, column="low", greater_than=1.0)
    return Contract(
        name="t", version="1", columns=tuple(columns), rules=rules, label=label, primary_key=primary_key(values)
    )


@pytest.fixture
def rows():
    at = pd.date_range("2013-01-01T05:00", periods=ROWS, freq="h", tz="UTC")
    local = at.tz_convert("America/New_York")
    low = np.arange(ROWS, dtype=float)
    high = np.where(np.arange(ROWS) < 6, np.nan, low + 1)  # exactly the 10 percent of nulls that are allowed
    return pd.DataFrame(
        {
            "day": np.arange(ROWS) // 10,
            "flight": np.arange(ROWS) % 10,
            "at": at,
            "date": local.tz_localize(None).normalize(),
            "hour": local.hour.astype("int64"),
            "low": low,
            "high": high,
            "copy": low,
            "origin": np.resize(["EWR", "JFK", "LGA"], ROWS),
            "tail": [f"N{number}" for number in range(ROWS)],
            "model": np.resize(["A320", "B737"], ROWS),
            "flag": np.resize([True, False], ROWS),
            "secret": np.resize(["a", "b"], ROWS),
        },
        index=pd.RangeIndex(1000, 1000 + ROWS),
    )


def statuses(rows, wanted=None):
    return {result.rule.id: result for result in validate_frame(rows, wanted or contract())}


def failed(rows):
    return {name for name, result in statuses(rows).items() if result.status == "fail"}


def test_validate_frame_healthy_rows_pass_every_rule(rows):
    results = validate_frame(rows, contract())
    assert {result.rule.id: result.observed for result in results if result.status != "pass"} == {}
    assert [result.rule for result in results] == list(contract().rules)
    check = contract_check(results)
    assert (check.name, check.status, check.observed) == ("contract", "pass", 0)
    assert len(check.details) == len(results)


def put(column, place, value):
    def change(rows):
        rows[column] = rows[column].astype(object) if isinstance(value, str) else rows[column]
        rows.loc[1000 + place, column] = value

    return change


@pytest.mark.parametrize(
    ("change", "rule", "row"),
    [
        (put("high", 7, np.nan), "high.nulls", {"day": 0, "flight": 0}),
        (put("at", 7, pd.NaT), "at.required", {"day": 0, "flight": 7}),
        (put("at", 7, pd.Timestamp("2014-01-01T05:00Z")), "at.range", {"day": 0, "flight": 7}),
        (put("at", 7, pd.Timestamp("2013-01-01T04:59:59Z")), "at.range", {"day": 0, "flight": 7}),
        (put("date", 7, pd.Timestamp("2012-12-31")), "date.range", {"day": 0, "flight": 7}),
        (put("hour", 7, 24), "hour.range", {"day": 0, "flight": 7}),
        (put("low", 7, -1.0), "low.range", {"day": 0, "flight": 7}),
        (put("low", 7, -np.inf), "low.range", {"day": 0, "flight": 7}),
        (put("origin", 7, "EWX"), "origin.allowed", {"day": 0, "flight": 7}),
        (put("tail", 7, "X1"), "tail.pattern", {"day": 0, "flight": 7}),
        (put("tail", 7, "N12345"), "tail.length", {"day": 0, "flight": 7}),
        (put("tail", 7, "N8"), "tail.unique", {"day": 0, "flight": 7}),
        (put("tail", 7, "n/a"), "tail.missing", {"day": 0, "flight": 7}),
        (put("tail", 7, None), "tail.missing", {"day": 0, "flight": 7}),
        (put("model", 7, "?"), "model.missing", {"day": 0, "flight": 7}),
        (put("flight", 7, 6), "primary_key", {"day": 0, "flight": 6}),
        (put("hour", 7, 3), "at.hour_in_zone.hour", {"day": 0, "flight": 7}),
        (put("high", 7, 6.5), "low.less_or_equal.high", {"day": 0, "flight": 7}),
        (put("copy", 7, 6.5), "low.equal.copy", {"day": 0, "flight": 7}),
    ],
)
def test_validate_frame_planted_fault_fails_its_rule_and_names_the_row(rows, change, rule, row):
    change(rows)
    results = statuses(rows)
    assert results[rule].status == "fail"
    assert row in [{name: item[name] for name in ("day", "flight")} for item in results[rule].failing_rows]
    assert contract_check(tuple(results.values())).stops


def test_validate_frame_instants_shifted_by_their_zone_fail_only_the_invariant(rows):
    rows["at"] = rows["at"].dt.tz_convert("America/New_York").dt.tz_localize(None).dt.tz_localize("UTC")
    rows = rows.iloc[5:]  # the first hours would also leave the range
    assert failed(rows) == {"at.hour_in_zone.hour"}


@pytest.mark.parametrize(
    ("column", "values", "held"),
    [
        ("hour", lambda rows: rows["hour"].astype(float), "holds number"),
        ("low", lambda rows: rows["low"].astype(str), "holds string"),
        ("origin", lambda rows: rows["hour"], "holds integer"),
        ("flag", lambda rows: rows["flag"].astype("int64"), "holds integer"),
        ("date", lambda rows: rows["at"], "holds timestamp"),
        ("date", lambda rows: rows["date"] + pd.Timedelta(hours=1), "holds timestamp"),
        ("at", lambda rows: rows["at"].astype(str), "holds string"),
        ("model", lambda rows: pd.Series([b"1", b"a"] * 30, index=rows.index), "holds binary"),
    ],
)
def test_validate_frame_wrong_type_fails_and_says_what_is_there(rows, column, values, held):
    rows[column] = values(rows)
    result = statuses(rows)[f"{column}.type"]
    assert (result.status, result.observed) == ("fail", held)


def test_validate_frame_integers_are_numbers(rows):
    rows["low"] = rows["low"].astype("int64")
    assert statuses(rows)["low.type"].status == "pass"


def test_validate_frame_missing_column_fails_its_type_and_leaves_the_rest_unevaluated(rows):
    results = statuses(rows.drop(columns="hour"))
    assert (results["hour.type"].status, results["hour.type"].observed) == ("fail", "the column is missing")
    for name in ("hour.range", "hour.not_all_null", "at.hour_in_zone.hour"):
        assert results[name].status == "error"
    check = contract_check(tuple(results.values()))
    assert check.status == "fail"
    assert "the column is missing" in check.evidence


def test_validate_frame_missing_key_column_still_names_rows_by_the_rest(rows):
    rows["high"] = np.nan
    assert statuses(rows.drop(columns="day"))["high.nulls"].failing_rows[0] == {"flight": 0, "high": None}


@pytest.mark.parametrize("column", ["copy", "high", "origin", "date", "flag"])
def test_validate_frame_all_null_column_fails(rows, column):
    rows[column] = rows[column].mask(rows["day"] >= 0)
    nulls = statuses(rows).get(f"{column}.not_all_null") or statuses(rows)[f"{column}.nulls"]
    assert nulls.status == "fail"


def test_validate_frame_hours_beside_a_column_of_nulls_alone_are_no_error(rows):
    rows["hour"] = None
    results = statuses(rows)
    assert (results["at.hour_in_zone.hour"].status, results["at.hour_in_zone.hour"].error) == ("pass", None)
    assert results["hour.not_all_null"].status == "fail"


def test_validate_frame_all_null_column_with_a_bound_that_allows_it_passes(rows):
    values = table()
    values["properties"][7]["quality"] = [{"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": 100}]
    rows["copy"] = np.nan
    assert statuses(rows, contract(values))["copy.nulls"].status == "pass"


def test_validate_frame_empty_table_never_passes(rows):
    results = statuses(rows.head(0))
    assert results["not_empty"].status == "fail"
    assert results["high.nulls"].status == "fail"
    assert contract_check(tuple(results.values())).status == "fail"


def test_validate_frame_without_columns_fails(rows):
    check = contract_check(validate_frame(pd.DataFrame(), contract()))
    assert check.status == "fail"


def test_validate_frame_row_count_outside_its_bound_fails(rows):
    result = statuses(rows.head(9))["row_count"]
    assert (result.status, result.observed) == ("fail", "9 rows")


def test_validate_frame_rule_that_cannot_be_evaluated_is_an_error_and_stops(rows):
    rows["at"] = rows["at"].dt.tz_localize(None)
    results = statuses(rows)
    assert results["at.hour_in_zone.hour"].status == "error"
    assert "no time zone" in str(results["at.range"].error)
    check = contract_check(tuple(results.values()))
    assert check.status == "error"
    assert check.stops


def test_validate_frame_failing_rows_are_at_most_twenty_and_json(rows):
    rows["high"] = np.nan
    rows["at"] = rows["at"] + pd.Timedelta(days=400)
    results = statuses(rows)
    assert len(results["high.nulls"].failing_rows) == 20
    assert results["high.nulls"].failing_rows[0] == {"day": 0, "flight": 0, "high": None}
    check = contract_check(tuple(results.values()))
    json.dumps(check.model_dump(), allow_nan=False)


def test_validate_frame_sensitive_column_shows_counts_and_no_row(rows):
    rows["secret"] = rows["secret"].astype(object)
    rows.loc[1007, "secret"] = "hunter2"
    check = contract_check(validate_frame(rows, contract()))
    detail = next(item for item in check.details if item["rule"] == "secret.allowed")
    assert detail["unexpected"] == 1
    assert detail["rows_withheld"]
    assert "rows" not in detail
    assert "hunter2" not in check.model_dump_json()


def test_validate_frame_sensitive_column_stays_out_of_messages_and_other_rules(rows):
    rows["secret"] = "hunter2"
    values = table()
    values["properties"][12]["logicalTypeOptions"] = {"minLength": 1}
    values["quality"].append({"type": "custom", "engine": "trainworthy",
                              "implementation": {"rule": "less_or_equal", "columns": ["secret", "low"]}})  # fmt: skip
    check = contract_check(validate_frame(rows, contract(values)))
    assert check.status == "fail"
    assert "hunter2" not in check.model_dump_json()


@pytest.mark.parametrize("severity", ["warning", "info"])
def test_contract_check_failed_rule_of_lower_severity_passes_and_is_named(rows, severity):
    values = table()
    values["properties"][8]["quality"][0]["severity"] = severity
    rows.loc[1007, "origin"] = "EWX"
    check = contract_check(validate_frame(rows, contract(values)))
    assert check.status == "pass"
    assert f"{severity}: origin.allowed: 1 of 60 rows" in check.evidence


def test_contract_check_two_bounds_on_one_measure_are_judged_apart(rows):
    values = table()
    values["properties"][6]["quality"].append(
        {"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": 5, "severity": "warning"}
    )
    results = statuses(rows, contract(values))
    assert (results["high.nulls"].status, results["high.nulls_2"].status) == ("pass", "fail")


def test_contract_check_of_nothing_is_an_error():
    assert contract_check(()).status == "error"


def test_validate_frame_twice_in_one_process_is_independent(rows):
    bad = rows.assign(hour=99)
    assert contract_check(validate_frame(bad, contract())).status == "fail"
    assert contract_check(validate_frame(rows, contract())).status == "pass"


def test_logical_type_knows_arrow_and_python_values():
    days = pd.Series(pd.date_range("2013-01-01", periods=2))
    assert logical_type(days.dt.date) == "date"
    assert logical_type(pd.Series(["a", None], dtype="str")) == "string"
    assert logical_type(pd.Series(["a", None], dtype=object)) == "string"
    assert logical_type(pd.Series([1, None], dtype="Int64")) == "integer"
    assert logical_type(pd.Series([True, None], dtype="boolean")) == "boolean"
    assert logical_type(days.astype("int64")) == "integer"
