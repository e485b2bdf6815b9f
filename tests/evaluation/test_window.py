import pytest

from lifecycle.evaluation.window import window_check

ENDS = {"training": "2013-08-30 22:00:00+00:00", "calibration": "2013-09-29T22:00:00"}


def test_window_after_the_embargo_passes_and_tells_the_nearest_split():
    check = window_check(ENDS, "2013-10-01T04:00:00", 1)
    assert check.status == "pass"
    assert check.observed == 1.25
    assert "calibration ends 2013-09-29" in check.evidence


@pytest.mark.parametrize(
    ("start", "embargo"), [("2013-09-30T21:59:59", 1), ("2013-09-01", 0), ("2013-10-01T05:00:00+09:00", 1)]
)
def test_window_inside_the_embargo_or_before_the_training_fails(start, embargo):
    check = window_check(ENDS, start, embargo)
    assert check.status == "fail"
    assert check.stops


@pytest.mark.parametrize(
    ("ends", "start", "embargo"),
    [
        ({}, "2013-10-01", 1),
        ({"training": "NaT"}, "2013-10-01", 1),
        ({"training": ""}, "2013-10-01", 1),
        (ENDS, "soon", 1),
        (ENDS, "2013-10-05", -1),
    ],
)
def test_window_that_cannot_be_read_is_an_error(ends, start, embargo):
    check = window_check(ends, start, embargo)
    assert check.status == "error"
    assert check.stops
