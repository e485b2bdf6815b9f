"""A date or time after the prediction time is no feature, unless a person has said that it is a plan."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.leakage.battery import leakage
from trainworthy.lifecycle.leakage.later_times import is_later, later_times


def judged(folder, after: pd.Timedelta, share: float, **changes):
    """The finding on a column `closed` that lies so long after the row's time in a share of the rows, else before."""
    rows = tables.table(5, tables.as_it_is)
    chosen = np.random.default_rng(1).random(len(rows)) < share
    closed = rows["day"] + pd.to_timedelta(np.where(chosen, after, -pd.Timedelta(days=3)))
    written = tables.written(rows.assign(closed=closed), folder)
    contract = tables.contract_of(rows.assign(closed=closed))
    columns = tuple(c.model_copy(update=changes if c.name == "closed" else {}) for c in contract.columns)
    return written, contract.model_copy(update={"columns": columns})


@pytest.mark.parametrize(("share", "words"), [(1.0, "in 100.0% of the rows"), (0.02, "% of the rows")])
def test_later_times_unreviewed_column_that_lies_after_the_prediction_time_stops_the_step(tmp_path, share, words):
    written, contract = judged(tmp_path, pd.Timedelta(days=9), share, reviewed=False)
    check = leakage(written, contract, tables.SPLIT, "day")
    assert check.stops
    assert "later_times of closed: it lies after day" in check.evidence
    assert words in check.evidence
    assert "trainworthy contract review" in check.fix


@pytest.mark.parametrize("reviewed", [True, False])
def test_later_times_column_that_never_does_passes(tmp_path, reviewed):
    (finding,) = later_times(*judged(tmp_path, pd.Timedelta(days=-9), 1.0, reviewed=reviewed), "day")
    assert finding.status == "pass"


def test_later_times_plan_that_a_person_has_declared_passes_and_tells_the_share(tmp_path):
    (finding,) = later_times(*judged(tmp_path, pd.Timedelta(days=9), 1.0, available_at="-P1D"), "day")
    assert finding.status == "pass"
    assert "100.0% of the rows; contract.yaml declares it as known at -P1D" in finding.evidence


def test_later_times_column_that_was_accepted_without_a_question_stops_all_the_same(tmp_path):
    (finding,) = later_times(*judged(tmp_path, pd.Timedelta(days=9), 0.5, reviewed="all is from the form"), "day")
    assert finding.status == "fail"


def test_later_times_without_dates_have_nothing_to_look_at(tmp_path):
    rows = tables.table(5, tables.as_it_is)
    (finding,) = later_times(tables.written(rows, tmp_path), tables.contract_of(rows), "day")
    assert finding.status == "not_applicable"


NOON = pd.Timestamp("2024-03-05 12:00")


@pytest.mark.parametrize(
    ("moment", "asked", "later"),
    [
        (NOON + pd.Timedelta(seconds=1), NOON, True),
        (NOON, NOON, False),
        (pd.NaT, NOON, False),
        # A prediction time of whole days does not say which of two on one day came first.
        (NOON, NOON.normalize(), False),
        (NOON + pd.Timedelta(days=1), NOON.normalize(), True),
        # Of a time without a zone nobody knows the hour beside one with a zone, but two days are two days.
        (NOON + pd.Timedelta(hours=9), NOON.tz_localize("UTC"), False),
        (NOON + pd.Timedelta(days=2), NOON.tz_localize("UTC"), True),
        ((NOON + pd.Timedelta(hours=1)).tz_localize("UTC"), NOON.tz_localize("America/New_York"), False),
    ],
)
def test_is_later_compares_days_and_zones_as_far_as_they_are_known(moment, asked, later):
    assert is_later(pd.Series([moment]), pd.Series([asked])).tolist() == [later]


def test_is_later_reads_dates_of_parquet():
    days = pd.Series([NOON.date(), (NOON + pd.Timedelta(days=1)).date(), None])
    assert is_later(days, pd.Series([NOON] * 3)).tolist() == [False, True, False]


def test_later_times_of_rows_without_times_have_no_later(tmp_path):
    (finding,) = later_times(*judged(tmp_path, pd.Timedelta(days=9), 1.0, reviewed=False), None)
    assert finding.status == "not_applicable"
