"""drift on every month that can be the newest one, April to December: none is flagged."""

import pytest
from flights_months import flagged, through

from use_cases.flight_delays import dataset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flights") / "built"
    dataset.build(folder, 12, "0.0.3")
    return folder


@pytest.mark.parametrize("month", range(4, 13))
def test_flights_drift_of_a_healthy_month_is_quiet(built, month, tmp_path):
    check, found = flagged(through(month, built, tmp_path))
    assert found == {}
    assert check.status == "pass"
