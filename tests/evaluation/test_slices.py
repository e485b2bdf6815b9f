import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.slices import coded, is_coded, slice_codes, slice_metrics
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc


def predictions(rows: int = 3000) -> pd.DataFrame:
    """Rows of 20 groups; carrier B is scored backwards, C is thin and D thinner."""
    random = np.random.default_rng(0)
    truth = random.beta(2, 4, rows)
    frame = pd.DataFrame({"group": np.arange(rows) % 20, "label": (random.random(rows) < truth).astype(int)})
    frame["slice:carrier"] = random.choice(["A", "B"], rows)
    frame.loc[:49, "slice:carrier"] = "C"
    frame.loc[50:54, "slice:carrier"] = "D"
    frame["candidate"] = np.where(frame["slice:carrier"] == "B", 1 - truth, truth)
    frame["distance"] = random.integers(100, 2500, rows)
    return frame


def test_slices_of_text_show_the_planted_bad_one():
    frame = predictions()
    results = slice_metrics(frame, ["carrier"], "candidate", BINARY)
    aucs = {m.slice: m for m in results.metrics if m.metric == "auc"}
    assert set(aucs) == {"carrier=A", "carrier=B"}
    assert aucs["carrier=B"].estimate.high < 0.5 < aucs["carrier=A"].estimate.low
    rows = frame[frame["slice:carrier"] == "A"]
    assert aucs["carrier=A"].estimate.value == pytest.approx(auc(rows["label"], rows["candidate"]))
    assert aucs["carrier=A"].rows == len(rows)


def test_slices_that_are_too_small_are_listed_and_tiny_ones_not_named():
    results = slice_metrics(predictions(), ["carrier"], "candidate", BINARY)
    named, tiny = results.insufficient
    assert named == {"slice": "carrier=C", "rows": 50, "reason": "50 rows, fewer than 200"}
    assert tiny == {"slice": "carrier: small values", "rows": 5, "reason": "1 value of 5 rows"}


def test_slices_of_fewer_rows_are_measured_where_that_is_declared():
    metrics = slice_metrics(predictions(), ["carrier"], "candidate", BINARY, least_rows=40)
    assert "carrier=C" in {metric.slice for metric in metrics.metrics}


def test_slices_hold_every_row_once():
    frame = predictions()
    results = slice_metrics(frame, ["carrier"], "candidate", BINARY)
    measured = sum(m.rows for m in results.metrics if m.metric == "brier")
    assert measured + sum(item["rows"] for item in results.insufficient) == len(frame)


def test_slices_of_a_column_with_many_values_name_twenty_and_count_the_rest():
    frame = predictions()
    frame["slice:plane"] = np.arange(len(frame)) % 100
    frame["slice:plane"] = frame["slice:plane"].astype(str)
    insufficient = slice_metrics(frame, ["plane"], "candidate", BINARY).insufficient
    assert len(insufficient) == 21
    assert insufficient[-1] == {
        "slice": "plane: small values",
        "rows": 2400,
        "reason": "80 values of at most 30 rows each",
    }


def test_slice_of_few_groups_or_one_class_is_listed():
    frame = predictions()
    frame["slice:late"] = np.where(frame["group"] < 7, "few", "many")
    frame["slice:sure"] = np.where(frame["label"] == 1, "yes", "no")
    reasons = {
        item["slice"]: item["reason"]
        for item in slice_metrics(frame, ["late", "sure"], "candidate", BINARY).insufficient
    }
    assert reasons == {
        "late=few": "7 groups, fewer than 8",
        "sure=yes": "label 0 occurs in 0 groups, fewer than 2",
        "sure=no": "label 1 occurs in 0 groups, fewer than 2",
    }


def test_slices_of_numbers_are_quartiles_with_missing_apart():
    values = pd.Series([*range(1, 101), None], name="distance", dtype="Int64")
    codes, names = slice_codes(values)
    assert names == [
        "distance <= 25",
        "25 < distance <= 50",
        "50 < distance <= 75",
        "distance > 75",
        "distance missing",
    ]
    assert np.bincount(codes).tolist() == [25, 25, 25, 25, 1]


def test_slices_of_numbers_mostly_at_their_greatest_value_are_two():
    codes, names = slice_codes(pd.Series([*range(12), *[99] * 100], name="x"))
    assert names == ["x <= 11", "x > 11"]
    assert np.bincount(codes).tolist() == [12, 100]


def test_slices_of_few_numbers_and_booleans_are_single_values():
    assert slice_codes(pd.Series([9, 10, 9, None], name="month", dtype="Int64"))[1] == [
        "month=9",
        "month=10",
        "month missing",
    ]
    assert slice_codes(pd.Series([True, False], name="weekend"))[1] == ["weekend=True", "weekend=False"]


def test_slices_of_a_column_without_values_are_missing_only():
    codes, names = slice_codes(pd.Series([None, None], name="wing", dtype=object))
    assert names == ["wing missing"]
    assert codes.tolist() == [0, 0]


def test_slices_of_times_are_refused():
    with pytest.raises(EvaluationError, match="holds times"):
        slice_codes(pd.Series(pd.to_datetime(["2013-01-01"]), name="time_hour"))


def test_coded_slices_are_the_same_rows_and_hold_no_value():
    for values in (
        pd.Series(["north", None, "south", "north"], name="place"),
        pd.Series([*range(40), None], name="age"),
    ):
        numbers = coded(values)
        assert (numbers.isna() == values.isna()).all()
        assert set(numbers.dropna()) <= {f"value {place}" for place in range(1, 6)}
        assert not is_coded(values)
        assert is_coded(numbers)
        codes, hidden = (slice_codes(one)[0] for one in (values, numbers))
        assert ((codes[:, None] == codes) == (hidden[:, None] == hidden)).all()
