"""How late rows may be: what is read from contract.yaml, each mistake, and the verdict against a given clock."""

import datetime as dt
from pathlib import Path

import pandas as pd
import pytest
import yaml

from trainworthy.lifecycle.contract.freshness import AHEAD, Freshness, freshness_check
from trainworthy.lifecycle.contract.read import contract_problems, load_contract
from trainworthy.lifecycle.data.newest import newest_value
from trainworthy.lifecycle.errors import DatasetError

TOY = Path(__file__).parents[3] / "tests" / "toy" / "use_cases" / "toy" / "contract.yaml"
GOOD = {"property": "latency", "value": 2, "unit": "d", "element": "toy_rows.when"}
NOW = dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC)
TWO_DAYS = Freshness(column="when", seconds=2 * 86400, value=2, unit="d")


@pytest.fixture
def contract(tmp_path):
    """A function that writes the toy's contract with these service levels."""

    def write(*levels, **rest):
        values = yaml.safe_load(TOY.read_text()) | {"slaProperties": list(levels)} | rest
        path = tmp_path / "contract.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        return path

    return write


def judged(folder, declared=TWO_DAYS, now=NOW):
    return freshness_check(declared, newest_value(folder, declared.column, now + AHEAD), "toy_rows@v2", now)


def rows(folder, name, values):
    folder.mkdir(exist_ok=True)
    pd.DataFrame({"when": values}).to_parquet(folder / f"{name}.parquet", index=False)
    return folder


@pytest.mark.parametrize(
    ("level", "column", "seconds"),
    [
        ({}, "when", 2 * 86400),
        ({"property": "ly", "value": 90, "unit": "minutes"}, "when", 5400),
        ({"element": "day", "value": 0.5, "unit": "wk"}, "day", 302_400),
        ({"value": 1, "unit": "yr"}, "when", 31_557_600),
    ],
)
def test_freshness_in_the_standards_form_is_column_and_seconds(contract, level, column, seconds):
    path = contract({"property": "retention", "value": 3, "unit": "y"}, GOOD | level)
    found = load_contract(path).freshness
    assert (found.column, found.seconds, found.whole_days) == (column, seconds, column == "day")


def test_freshness_does_not_change_what_the_contract_accepts(contract):
    assert load_contract(contract(GOOD)).sha256 == load_contract(TOY).sha256
    assert load_contract(TOY).freshness is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": 0}, "slaProperties[0].value"),
        ({"value": -1}, "slaProperties[0].value"),
        ({"value": "2"}, "slaProperties[0].value"),
        ({"value": True}, "slaProperties[0].value"),
        ({"value": 1e300, "unit": "y"}, "of 100 years at most"),
        ({"unit": "dys"}, "did you mean 'days'?"),
        ({"unit": "m"}, "slaProperties[0].unit"),
        ({"unit": None}, "slaProperties[0].unit"),
        ({"element": "toy_rows.whn"}, "did you mean 'when'?"),
        ({"element": "other.when"}, "is not one column of the table toy_rows"),
        ({"element": "when,day"}, "is not one column of the table toy_rows"),
        ({"element": ""}, "write toy_rows.COLUMN, where COLUMN says when a row happened: when, day"),
        ({"element": "x1"}, "the column holds no time"),
        ({"schedule": "0 5 * * *"}, "would have no effect"),
        ({"property": "latncy"}, "write latency"),
        ({"property": "Freshness"}, "write latency"),
    ],
)
def test_freshness_nonsense_is_refused_at_its_place(contract, change, told):
    level = {key: value for key, value in (GOOD | change).items() if value is not None}
    (problem,) = contract_problems(contract(level))
    assert told in str(problem)


def test_freshness_all_problems_of_it_are_told_at_once(contract):
    found = contract_problems(contract(GOOD | {"value": -2, "unit": "parsec", "element": "x1"}))
    assert len(found) == 3


def test_freshness_two_latencies_are_refused(contract):
    (problem,) = contract_problems(contract(GOOD, GOOD | {"element": "day"}))
    assert "only one latency" in str(problem)


def test_freshness_of_a_sensitive_column_is_refused(contract):
    schema = yaml.safe_load(TOY.read_text())["schema"]
    schema[0]["properties"][1]["customProperties"].append({"property": "sensitive", "value": True})
    (problem,) = contract_problems(contract(GOOD, schema=schema))
    assert "a sensitive column can't be it" in str(problem)


@pytest.mark.parametrize(("hours", "status"), [(1, "pass"), (48, "pass"), (49, "fail"), (5000, "fail"), (-3, "pass")])
def test_freshness_newest_row_within_the_latency_passes_and_beyond_it_fails(tmp_path, hours, status):
    old = pd.Timestamp(NOW) - pd.Timedelta(days=300)
    rows(tmp_path / "rows", "a", [pd.Timestamp(NOW) - pd.Timedelta(hours=hours), old])
    check = judged(rows(tmp_path / "rows", "b", [old, pd.NaT]))
    assert check.status == status
    assert check.observed == pytest.approx(max(0, hours) / 24, abs=0.01)
    assert "toy_rows@v2" in check.evidence


def test_freshness_time_with_a_zone_is_read_as_its_instant(tmp_path):
    local = pd.Series([pd.Timestamp(NOW) - pd.Timedelta(hours=47)]).dt.tz_convert("America/New_York")
    naive = local.dt.tz_localize(None)
    assert judged(rows(tmp_path / "zone", "a", local)).status == "pass"
    # Without its zone the same wall clock is read as UTC, four hours earlier.
    assert judged(rows(tmp_path / "naive", "a", naive)).status == "fail"


@pytest.mark.parametrize(("day", "status"), [("2024-05-30", "pass"), ("2024-05-29", "fail")])
def test_freshness_day_counts_from_its_end(tmp_path, day, status):
    declared = TWO_DAYS.model_copy(update={"whole_days": True})
    for name, value in (("date", dt.date.fromisoformat(day)), ("midnight", pd.Timestamp(day))):
        assert judged(rows(tmp_path / name, "a", [value]), declared).status == status


def test_freshness_row_in_the_far_future_hides_no_late_data(tmp_path):
    late = pd.Timestamp(NOW) - pd.Timedelta(days=9)
    check = judged(rows(tmp_path / "rows", "a", [late, pd.Timestamp("2099-01-01", tz="UTC")]))
    assert check.status == "fail"
    assert check.details[0]["rows_after"] == 1


@pytest.mark.parametrize("values", [[pd.NaT], ["2099-01-01"], []])
def test_freshness_without_a_value_up_to_now_is_an_error(tmp_path, values):
    check = judged(rows(tmp_path / "rows", "a", pd.to_datetime(pd.Series(values, dtype="object"), utc=True)))
    assert check.status == "error"
    assert check.stops


def test_freshness_column_without_times_or_missing_is_refused(tmp_path):
    for name, change in (("text", {"column": "when"}), ("gone", {"column": "whn"})):
        folder = rows(tmp_path / name, "a", ["yesterday"])
        with pytest.raises(DatasetError):
            judged(folder, TWO_DAYS.model_copy(update=change))


def test_freshness_that_is_not_declared_does_not_apply():
    assert freshness_check(None, newest=None, version="toy_rows@v2", now=NOW).status == "not_applicable"
