"""history: new days against the same weekdays before; odd days are named, and what lasts is told first."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainworthy.lifecycle.drift.history import history_check, measure_days
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.lifecycle.storage.metrics import VersionMetrics

FIRST = date(2024, 1, 1)


def metrics(rows, nulls=None, version="v2", content_hash="b"):
    """Metrics of days from Monday 1 January 2024 on."""
    there = np.flatnonzero(rows)
    return VersionMetrics(
        dataset="orders", version=version, content_hash=content_hash, day_column="day",
        days=tuple(FIRST + timedelta(days=int(day)) for day in there),
        rows=tuple(int(rows[day]) for day in there), columns=("price",),
        nulls={name: tuple(int(values[day]) for day in there) for name, values in (nulls or {}).items()},
    )  # fmt: skip


def rhythm(days, seed=0):
    """Rows a day: many on workdays, few on Saturdays, none on Sundays."""
    usual = np.array([1000, 1000, 1000, 1000, 1200, 300, 0])[np.arange(days) % 7]
    return np.random.default_rng(seed).poisson(usual)


def earlier(days):
    return (metrics(rhythm(days), version="v1", content_hash="a"),)


def check(rows, nulls=None, before=84):
    return history_check(metrics(rows, nulls), earlier(before), window_days=28)


@pytest.mark.parametrize("seed", range(5))
def test_history_of_a_weekly_rhythm_is_quiet(seed):
    found = check(rhythm(112, seed))
    assert (found.status, found.observed) == ("pass", 0)
    assert "28 new days, 2024-03-24 to 2024-04-20" in found.evidence


def test_history_names_a_holiday_and_does_not_stop():
    rows = rhythm(112)
    rows[[88, 95]] = 0
    found = check(rows)
    assert (found.status, found.severity, found.stops, found.observed) == ("fail", "warning", False, 2)
    assert "no rows at all (2024-03-29, 2024-04-05)" in found.evidence
    assert found.details[0]["kind"] == "single days"


def test_history_tells_days_in_a_row_before_single_ones():
    rows = rhythm(112)
    rows[100:105] = rows[100:105] // 4
    nulls = np.zeros(112)
    nulls[91] = rows[91] // 2
    found = check(rows, {"price": nulls})
    assert [row["kind"] for row in found.details] == ["days in a row", "single days"]
    assert found.evidence.index("in a row") < found.evidence.index("price")
    assert "feed" in found.fix


def test_history_tells_a_level_that_changed():
    rows = rhythm(112)
    rows[84:] = rows[84:] // 2
    found = check(rows)
    assert [row["kind"] for row in found.details] == ["lasting change of level"]
    assert found.details[0]["column"] == "(rows)"


def test_history_of_a_column_that_often_lacks_values_on_a_day_is_quiet():
    rows = rhythm(112)
    nulls = np.where(np.arange(112) % 5 == 0, rows * 0.5, 0)
    assert check(rows, {"price": nulls}).status == "pass"


def test_history_judges_only_the_days_that_the_version_before_lacks():
    rows = rhythm(112)
    rows[86] = 0
    assert check(rows, before=84).status == "fail"
    assert check(rows, before=98).status == "pass"


def test_history_of_the_same_version_again_judges_the_same_days():
    rows = rhythm(112)
    rows[86] = 0
    known = (*earlier(84), metrics(rows))
    assert history_check(metrics(rows), known, 28).evidence == history_check(metrics(rows), known[:1], 28).evidence


def test_history_without_an_earlier_version_judges_the_window():
    rows = rhythm(112)
    rows[86] = 0
    assert history_check(metrics(rows), (), 28).status == "fail"
    other = earlier(84)[0].model_copy(update={"dataset": "returns"})
    assert history_check(metrics(rows), (other,), 14).status == "pass"


def test_history_of_too_few_weekdays_is_insufficient_and_holds_nothing_back():
    found = history_check(metrics(rhythm(50)), (), 28)
    assert (found.status, found.severity, found.stops) == ("insufficient", "warning", False)


def test_history_of_few_rows_a_day_is_quiet():
    rows = np.random.default_rng(1).poisson(3, 112)
    nulls = np.random.default_rng(2).binomial(rows, 0.3)
    assert check(rows, {"price": nulls}).status == "pass"


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_days_are_measured_with_nulls_and_gaps(zone, tmp_path):
    when = pd.to_datetime(["2024-01-01 23:30", "2024-01-01 10:00", "2024-01-04 00:10", None])
    frame = pd.DataFrame(
        {"when": when.tz_localize(zone), "price": [1.0, None, None, None], "shop": ["a", "b", "c", "d"]}
    )
    frame.to_parquet(tmp_path / "one.parquet", index=False)
    frame.iloc[:1].to_parquet(tmp_path / "two.parquet", index=False)
    version = DatasetVersion.model_construct(name="orders", revision="v1", content_hash="a")
    found = measure_days(tmp_path, version, "when")
    assert (found.days, found.rows) == ((date(2024, 1, 1), date(2024, 1, 4)), (3, 1))
    assert found.nulls == {"price": (1, 1)}
    assert found.columns == ("price", "shop")


def measured(frame, folder):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(frame), folder / "one.parquet")
    return measure_days(folder, DatasetVersion.model_construct(name="orders", revision="v1", content_hash="a"), "day")


def test_days_count_nan_as_null_and_know_columns_by_their_place(tmp_path):
    day = [date(2024, 1, 1), date(2024, 1, 1), date(2024, 1, 2)]
    found = measured(
        {
            "day": day,
            "a": [1, 2, 3],
            "a.b": [None, 1, 2],
            "price": pa.array([1.0, float("nan"), 2.0]),
            "b.c": [1, 2, 3],
        },
        tmp_path,
    )
    assert found.nulls == {"a.b": (1, 0), "price": (1, 0)}


@pytest.mark.parametrize("wrong", [date(1024, 1, 1), date(9999, 12, 31)])
def test_days_of_another_century_take_no_room_and_spoil_no_history(wrong, tmp_path):
    rows = rhythm(112)
    day = [FIRST + timedelta(days=place) for place, count in enumerate(rows) for _ in range(count)]
    values = [None if place % 20 else place for place in range(len(day))]
    healthy, slipped = ({"day": day, "price": values}, {"day": [*day, wrong], "price": [*values, None]})
    found = measured(slipped, tmp_path)
    assert len(found.days) == np.count_nonzero(rows) + 1
    assert len(found.model_dump_json()) < 10_000
    expected = history_check(measured(healthy, tmp_path), earlier(84), 28)
    assert history_check(found, earlier(84), 28) == expected
    assert expected.status == "pass"


def test_days_beyond_the_calendar_are_left_out(tmp_path):
    day = pa.array([0, 10**8, 1], pa.date32())
    found = measured({"day": day, "price": [1, 2, 3]}, tmp_path)
    assert (found.days, found.rows) == ((date(1970, 1, 1), date(1970, 1, 2)), (1, 1))


def test_history_of_a_dataset_without_days_is_insufficient():
    found = history_check(metrics([]), (), 28)
    assert (found.status, found.stops) == ("insufficient", False)
