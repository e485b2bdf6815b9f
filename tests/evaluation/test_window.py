import pandas as pd
import pytest

from trainworthy.lifecycle.data.split import split_by_time
from trainworthy.lifecycle.evaluation.disjoint import window_check
from trainworthy.lifecycle.spec.split import TimeSplit

ENDS = {"training": "2013-08-30 22:00:00+00:00", "calibration": "2013-09-29T22:00:00"}


def test_window_of_exactly_the_embargo_passes():
    assert window_check(ENDS, "2013-10-01T00:00:00", "1d").status == "pass"


@pytest.mark.parametrize(
    ("end", "start"),
    [
        ("2013-03-09T23:50:00-05:00", "2013-03-11T00:00:00-04:00"),
        ("2013-11-02T23:50:00-04:00", "2013-11-04T00:00:00-05:00"),
    ],
)
def test_window_counts_calendar_days_where_the_clocks_change(end, start):
    check = window_check({"calibration": end}, start, "1d")
    assert (check.status, check.observed) == ("pass", 1)
    assert window_check({"calibration": end}, start, "2d").status == "fail"
    for moment in (end, start):
        # The zone of the split column, as the snapshot writes it.
        assert pd.Timestamp(moment).tz_convert("America/New_York").isoformat() == moment


def test_window_agrees_with_the_splits_that_were_cut_in_the_week_of_the_change():
    hours = pd.date_range("2012-12-20", "2013-04-08", freq="h", inclusive="left", tz="America/New_York")
    benchmark = {"window": "28d", "roll": "each_version"}
    cut = {"by": "time", "column": "when", "embargo": "1d", "benchmark": benchmark}
    split = TimeSplit.model_validate({"resample_by": "when", "validation": "10d", "calibration": "10d", **cut})
    splits = split_by_time(pd.DataFrame({"when": hours}), split)
    start, end = splits["benchmark"]["when"].min(), splits["calibration"]["when"].max()
    assert (str(end.date()), str(start.date())) == ("2013-03-09", "2013-03-11")
    assert window_check({"calibration": end.isoformat()}, start.isoformat(), "1d").observed == 1


def test_window_after_the_embargo_passes_and_tells_the_nearest_split():
    check = window_check(ENDS, "2013-10-01T04:00:00", "1d")
    assert check.status == "pass"
    assert check.observed == 1
    assert "calibration ends 2013-09-29" in check.evidence


@pytest.mark.parametrize(
    ("start", "embargo"), [("2013-09-30T23:59:59", "1d"), ("2013-09-30", "1d"), ("2013-09-01", "1d")]
)
def test_window_inside_the_embargo_or_before_the_training_fails(start, embargo):
    check = window_check(ENDS, start, embargo)
    assert check.status == "fail"
    assert check.stops


@pytest.mark.parametrize(
    ("ends", "start", "embargo"),
    [
        ({}, "2013-10-01", "1d"),
        ({"training": "NaT"}, "2013-10-01", "1d"),
        ({"training": ""}, "2013-10-01", "1d"),
        (ENDS, "soon", "1d"),
        (ENDS, "2013-10-05T00:00:00", "36h"),
    ],
)
def test_window_that_cannot_be_read_is_an_error(ends, start, embargo):
    check = window_check(ends, start, embargo)
    assert check.status == "error"
    assert check.stops


@pytest.mark.parametrize(
    ("start", "embargo", "status"),
    [
        ("2013-09-30T10:00:00", "12h", "pass"),
        ("2013-09-30T09:59:59", "12h", "fail"),
        ("2013-10-01T10:00:00", "36h", "pass"),
        ("2013-10-01T09:00:00", "36h", "fail"),
        ("2013-09-29T00:00:00", "1h", "fail"),
        ("2013-10-05T00:00:00+00:00", "1h", "error"),
    ],
)
def test_window_of_hours_counts_elapsed_time(start, embargo, status):
    check = window_check({"calibration": "2013-09-29T22:00:00"}, start, embargo)
    assert check.status == status


def test_window_of_hours_counts_instants_where_the_clocks_change():
    end, start = "2013-03-10T01:00:00-05:00", "2013-03-10T04:00:00-04:00"
    assert window_check({"training": end}, start, "2h").observed == 2
