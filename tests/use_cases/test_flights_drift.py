"""drift on real flights: spring is no drift, and what is planted into May is named with its column."""

import numpy as np
import pytest
from flights_months import flagged, through

from use_cases.flight_delays import dataset


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """The written splits of v4 and v5."""
    root = tmp_path_factory.mktemp("flights")
    dataset.build(root / "built", 5, "0.0.3")
    return {month: through(month, root / "built", root) for month in (4, 5)}


@pytest.mark.parametrize("month", [4, 5])
def test_flights_drift_of_a_healthy_spring_month_is_quiet(months, month):
    check, found = flagged(months[month])
    assert found == {}
    assert check.status == "pass"
    temperature = next(row for row in check.details if row["column"] == "temp")
    assert temperature["psi"] > 3


RANDOM = np.random.default_rng(0)
PLANTED = [
    ("distance", "psi", 30, lambda rows: rows.assign(distance=rows["distance"] * 1.609344)),
    ("carrier", "rows_of_vanished", 30, lambda rows: rows[rows["carrier"] != "DL"]),
    ("carrier", "rows_of_vanished", 30, lambda rows: rows[rows["carrier"] != "HA"]),
    ("carrier", "new_categories", 30, lambda rows: rows.assign(carrier=rows["carrier"].replace("AA", "AAL"))),
    ("arr_delay", "share_at_limit", 30, lambda rows: rows.assign(arr_delay=rows["arr_delay"].clip(upper=120))),
    ("temp", "days_of_one_value", 4, lambda rows: rows.assign(temp=61.0)),
    ("temp", "null_share", 30, lambda rows: rows.assign(temp=rows["temp"].mask(RANDOM.random(len(rows)) < 0.3))),
    ("tail_hours_since_previous", "psi", 30,
     lambda rows: rows.assign(tail_hours_since_previous=rows["tail_hours_since_previous"] * 60)),
    ("(rows)", "volume", 30, lambda rows: rows.sample(frac=0.5, random_state=0)),
]  # fmt: skip


@pytest.mark.parametrize(("column", "statistic", "days", "change"), PLANTED)
def test_flights_drift_planted_in_the_newest_month_is_found(months, column, statistic, days, change):
    check, found = flagged(months[5], change, days)
    assert column in found
    assert found[column]["statistic"].startswith(statistic)
    assert found[column]["observed"] > found[column]["threshold"]
    assert (check.status, check.severity) == ("fail", "warning")
