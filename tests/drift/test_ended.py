"""Values that ended before the window are told by their last day and are no finding; pauses and seasons are neither."""

import pandas as pd
import pytest
from frames import SPLIT, contract, shop_rows, written

from trainworthy.lifecycle.drift.check import drift_check

ROWS = shop_rows()


def told(rows, folder, **changes):
    check = drift_check(written(rows, folder), contract(**changes), SPLIT)
    return check, {row["column"]: row["ended"] for row in check.details if "ended" in row}


def without(rows, shop, days):
    """The rows but for the newest days of a shop."""
    new = rows["day"] > rows["day"].max() - pd.Timedelta(days=days)
    return rows[~(new & (rows["shop"] == shop))]


def test_ended_before_the_window_is_told_with_the_last_day_and_passes(tmp_path):
    check, ended = told(without(ROWS, "west", 60), tmp_path)
    assert check.status == "pass"
    assert ended == {"shop": {"west": "2024-05-15"}}
    assert check.evidence.endswith("ended before, by last day: shop: west (2024-05-15)")


def test_ended_with_the_window_is_a_finding_and_told_once(tmp_path):
    check, ended = told(without(ROWS, "west", 28), tmp_path)
    assert check.status == "fail"
    assert ended == {}


def test_ended_names_no_value_of_a_sensitive_column(tmp_path):
    check, ended = told(without(ROWS, "west", 60), tmp_path, shop={"sensitive": True})
    assert ended == {"shop": "1 values"}
    assert "west" not in str(check.model_dump())


@pytest.mark.parametrize(
    "shop",
    [
        lambda rows: rows["shop"],
        lambda rows: rows["day"].dt.month_name(),
        # In the first half of each quarter only, as snow.
        lambda rows: rows["shop"].where((rows["day"].dt.dayofyear % 91 > 45) | (rows["shop"] != "west"), "snow"),
    ],
)
def test_ended_of_shops_months_and_seasons_that_come_again_tells_nothing(shop, tmp_path):
    check, ended = told(ROWS.assign(shop=shop(ROWS)), tmp_path)
    assert ended == {}
    assert "ended" not in check.evidence
