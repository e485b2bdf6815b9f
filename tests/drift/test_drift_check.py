"""drift on rows made for it: healthy ones stay quiet, and each planted mechanism is named with its column."""

import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from frames import FEATURES, SPLIT, contract, newest, shop_rows, written

from trainworthy.lifecycle.drift.categories import recoded
from trainworthy.lifecycle.drift.check import drift_check
from trainworthy.lifecycle.drift.columns import Categories
from trainworthy.lifecycle.drift.time_axis import Axis
from trainworthy.lifecycle.spec.split import GroupSplit, Shares

ROWS = shop_rows()


def found(rows, folder, **changes):
    """The check, and the statistic of each flagged column."""
    check = drift_check(written(rows, folder), contract(**changes), SPLIT)
    flagged = [row for row in check.details if row["status"] == "fail"]
    return check, {row["column"]: row for row in flagged}


def planted(column, change, days=28):
    """The rows with the newest days' values of a column changed."""
    rows = ROWS.astype({"distance": float, "constant": float, "late": float})
    mask = newest(rows, days)
    rows.loc[mask, column] = change(rows.loc[mask, column])
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_drift_of_healthy_rows_with_a_season_is_quiet(seed, tmp_path):
    check, flagged = found(shop_rows(seed=seed), tmp_path)
    assert flagged == {}
    assert check.status == "pass"
    assert {row["column"] for row in check.details} == {*FEATURES, "late"}
    # The season is there to be seen, and its own history is the threshold.
    temperature = next(row for row in check.details if row["column"] == "temperature")
    assert temperature["psi"] > 0.5


NONE = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("column", "change", "statistic"),
    [
        ("distance", lambda x: x * 1.609344, "psi"),
        ("amount", lambda x: x * 60, "psi"),
        ("score", lambda x: x.mask(NONE.random(len(x)) < 0.3), "null_share_change"),
        ("temperature", lambda x: x.mask(NONE.random(len(x)) < 0.3), "null_share_change"),
        ("shop", lambda x: x.str.upper(), "new_categories_share"),
        ("shop", lambda x: x.replace("east", "EA"), "new_categories_share"),
        ("amount", lambda x: x.clip(upper=x.quantile(0.97)), "share_at_limit"),
        ("score", lambda x: x.clip(lower=x.quantile(0.02)), "share_at_limit"),
        ("score", lambda x: x.mask(NONE.random(len(x)) < 0.2, -1.0), "share_of_one_value"),
        ("constant", lambda x: x * 0 + 8, "share_of_one_value"),
        ("empty", lambda x: x.fillna(1.0), "null_share_change"),
        ("sensor", lambda x: x.fillna(0), "share_of_one_value"),
    ],
)
def test_drift_planted_in_the_window_is_found_with_its_column(column, change, statistic, tmp_path):
    check, flagged = found(planted(column, change), tmp_path)
    assert list(flagged) == [column]
    row = flagged[column]
    assert row["statistic"] == statistic
    assert row["observed"] > row["threshold"] > 0
    assert row["threshold_from"]
    assert row["fix"]
    assert (check.status, check.severity, check.stops) == ("fail", "warning", False)
    assert column in check.evidence


@pytest.mark.parametrize("days", [2, 5, 28])
def test_drift_of_a_stuck_sensor_names_value_and_days(days, tmp_path):
    _, flagged = found(planted("sensor", lambda x: x * 0 + 1003.25, days), tmp_path)
    assert list(flagged) == ["sensor"]
    if days < 28:
        assert flagged["sensor"]["statistic"] == "days_of_one_value"
        assert "1003.25" in flagged["sensor"]["cause"]
        assert flagged["sensor"]["where"].endswith("2024-07-14")


def test_drift_that_began_with_the_newest_week_names_the_week(tmp_path):
    _, flagged = found(planted("distance", lambda x: x * 2.54, 7), tmp_path)
    assert list(flagged) == ["distance"]
    assert "2024-07" in flagged["distance"]["where"]


def test_drift_of_a_unit_says_which(tmp_path):
    _, flagged = found(planted("distance", lambda x: x * 1.609344), tmp_path)
    assert "miles as kilometres" in flagged["distance"]["cause"]
    _, flagged = found(planted("amount", lambda x: x / 1000), tmp_path / "amount")
    assert "kilo" in flagged["amount"]["cause"]


def test_drift_of_a_temperature_in_the_other_scale_is_seen_through_the_season(tmp_path):
    rows = planted("temperature", lambda x: (x - 32) / 1.8)
    _, flagged = found(rows, tmp_path, temperature={"unit": "degrees Fahrenheit"})
    assert list(flagged) == ["temperature"]
    check, _ = found(ROWS, tmp_path / "healthy", temperature={"unit": "degrees Fahrenheit"})
    assert check.status == "pass"


@pytest.mark.parametrize("shop", ["north", "east"])
@pytest.mark.parametrize("days", [7, 28])
def test_drift_of_a_lost_feed_names_the_category(shop, days, tmp_path):
    rows = ROWS[~((ROWS["shop"] == shop) & newest(ROWS, days))]
    _, flagged = found(rows, tmp_path)
    assert flagged["shop"]["cause"] == f"gone: {shop}"


@pytest.mark.parametrize(("share", "word"), [(0.5, "lost"), (0.6, "lost")])
def test_drift_of_lost_rows_is_told_as_volume(share, word, tmp_path):
    kept = ~newest(ROWS) | (np.random.default_rng(1).random(len(ROWS)) < share)
    _, flagged = found(ROWS[kept], tmp_path)
    assert list(flagged) == ["(rows)"]
    assert word in flagged["(rows)"]["cause"]


def test_drift_of_rows_that_come_twice_is_told_as_volume(tmp_path):
    _, flagged = found(pd.concat([ROWS, ROWS[newest(ROWS)]]), tmp_path)
    assert list(flagged) == ["(rows)"]


def test_drift_of_a_short_history_is_insufficient_and_holds_nothing_back(tmp_path):
    check, _ = found(shop_rows(days=95), tmp_path)
    assert (check.status, check.severity, check.required, check.stops) == ("insufficient", "warning", False, False)
    assert "fewer than" in check.evidence
    assert "what is usual" in check.evidence


def test_drift_of_a_tiny_window_is_insufficient(tmp_path):
    rows = shop_rows(rows_a_day=2)
    check, _ = found(rows, tmp_path)
    assert check.status == "insufficient"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows_a_day", [8, 20])
def test_drift_of_few_rows_a_day_is_quiet(rows_a_day, seed, tmp_path):
    check, flagged = found(shop_rows(rows_a_day=rows_a_day, seed=seed), tmp_path)
    assert flagged == {}
    assert check.status == "pass"


def test_drift_beyond_the_declared_limit_stops(tmp_path):
    rows = planted("distance", lambda x: x * 1.609344)
    check, flagged = found(rows, tmp_path, distance={"allowed_drift": 0.2})
    assert check.stops
    assert list(flagged) == ["distance"]
    assert check.details[0]["threshold_from"].startswith("allowedDrift")
    # A limit is one for its own column only.
    check, _ = found(rows, tmp_path / "other", amount={"allowed_drift": 0.2})
    assert (check.status, check.stops) == ("fail", False)


def test_drift_limit_is_judged_without_history_too(tmp_path):
    rows = shop_rows(days=95)
    mask = newest(rows)
    rows["distance"] = rows["distance"].where(~mask, rows["distance"] * 3)
    check, _ = found(rows, tmp_path, distance={"allowed_drift": 0.2})
    assert check.stops


def test_drift_names_no_value_of_a_sensitive_column(tmp_path):
    rows = ROWS[~((ROWS["shop"] == "east") & newest(ROWS))]
    check, flagged = found(rows, tmp_path, shop={"sensitive": True})
    assert flagged["shop"]["cause"] == "gone: 1 values"
    assert not re.search(r"\beast\b", check.model_dump_json())
    _, flagged = found(planted("sensor", lambda x: x * 0 + 1003.25, 5), tmp_path / "b", sensor={"sensitive": True})
    assert "1003" not in str(flagged)


@pytest.mark.parametrize("seed", range(4))
def test_drift_of_splits_without_time_is_quiet_on_random_groups_and_loud_on_another_unit(seed, tmp_path):
    generator = np.random.default_rng(seed)
    rows = shop_rows(seed=seed).assign(customer=lambda x: generator.integers(0, 4000, len(x)))
    shares = Shares(validation=0.1, calibration=0.1, benchmark=0.1)
    spec = GroupSplit(by="group", group="customer", salt="a", shares=shares, resample_by="customer")

    def check(frame, folder):
        files = written(frame, folder)
        part = frame["customer"] % 10
        for name, chosen in (("training", part < 7), ("validation", part == 7), ("calibration", part == 8)):
            frame[chosen].to_parquet(files.path(name), index=False)
        frame[part == 9].to_parquet(files.path("benchmark"), index=False)
        return drift_check(files, contract(), spec)

    assert check(rows, tmp_path / "a").status == "pass"
    moved = rows.assign(amount=rows["amount"].where(rows["customer"] % 10 != 9, rows["amount"] * 60))
    found = check(moved, tmp_path / "b")
    assert [row["column"] for row in found.details if row["status"] == "fail"] == ["amount"]


def test_drift_of_rows_in_any_order_is_the_same(tmp_path):
    rows = planted("distance", lambda x: x * 1.609344)
    shuffled = rows.sample(frac=1, random_state=0)
    first, second = found(rows, tmp_path / "a")[1], found(shuffled, tmp_path / "b")[1]
    assert first["distance"]["observed"] == pytest.approx(second["distance"]["observed"], rel=0.05)
    assert list(first) == list(second) == ["distance"]


def test_drift_of_categories_over_many_days_takes_memory_by_rows_not_by_pairs_of_days():
    days, a_day = 9000, 4
    unit = np.repeat(np.arange(days), a_day)
    axis = Axis(("training", "benchmark"), unit, days, days - 28, tuple(map(str, range(days))), "days")
    codes = np.tile([0, 1, 2, 0], days)
    codes[unit >= axis.history] = 3
    values = Categories(codes, ("north", "south", "west", "EAST"), axis, unit)
    tracemalloc.start()
    (shift,) = recoded("shop", values, hidden=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (shift.statistic, shift.observed) == ("new_categories_share", 1.0)
    assert peak < 20e6
