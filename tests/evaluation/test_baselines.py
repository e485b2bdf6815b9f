import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc

NAMES = ("prior", "linear", "gradient_boosting")
FEATURES = ("number", "carrier", "plane", "weekend", "sched", "empty", "nothing", "taxi")


def flights(rows: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Every kind of column; the label depends on number, carrier and the hour."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"number": random.normal(size=rows), "carrier": random.choice(["A", "B", "C"], rows)})
    frame["plane"] = random.integers(0, 400, rows).astype(str)
    frame["weekend"] = random.random(rows) < 0.3
    frame["sched"] = pd.Timestamp("2013-01-01", tz="UTC") + pd.to_timedelta(random.integers(0, 5000, rows), unit="h")
    frame["empty"] = np.nan
    frame["nothing"] = pd.Series([None] * rows, dtype=object)
    frame["taxi"] = pd.to_timedelta(random.integers(0, 3000, rows), unit="s")
    logits = frame["number"] + 2 * (frame["carrier"] == "B") + (frame["sched"].dt.hour > 12) - 1.5
    frame["late"] = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)
    frame.loc[random.random(rows) < 0.1, ["number", "carrier"]] = None
    return frame


@pytest.fixture(scope="module")
def fitted():
    return fit_baselines(flights(), FEATURES, "late", NAMES, seed=0, kind=BINARY)


def test_prior_predicts_the_share_of_positives(fitted):
    training = flights()
    assert fitted["prior"](flights(10, 1)).tolist() == [pytest.approx(training["late"].mean())] * 10


@pytest.mark.parametrize("name", ["linear", "gradient_boosting"])
def test_baseline_learns_numbers_categories_and_hours(fitted, name):
    rows = flights(4000, 1)
    assert auc(rows["late"], fitted[name](rows)) > 0.72
    at = pd.concat([rows.head(1)] * 2)
    at["sched"] = pd.to_datetime(["2014-05-05 05:00", "2014-05-05 18:00"], utc=True)
    early, late = fitted[name](at)
    assert late > early + 0.05


@pytest.mark.parametrize("name", NAMES)
def test_baseline_fitted_twice_predicts_the_same_bits(fitted, name):
    again = fit_baselines(flights(), FEATURES, "late", [name], seed=0, kind=BINARY)[name]
    rows = flights(500, 1)
    assert again(rows).tobytes() == fitted[name](rows).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_baseline_of_unseen_missing_and_wild_values_gives_probabilities(fitted, name):
    rows = flights(50, 1).drop(columns="late")
    rows["carrier"] = "never seen"
    rows["weekend"] = pd.Series([None] * 50, dtype=object)
    rows["number"] = [np.inf, -1e300, None, 0.0, 1.0] * 10
    rows["empty"] = 7.0
    rows["sched"] = pd.NaT
    probabilities = fitted[name](rows)
    assert probabilities.shape == (50,)
    assert ((probabilities > 0) & (probabilities < 1)).all()


@pytest.mark.parametrize("name", NAMES)
def test_baseline_answers_for_a_row_whatever_the_other_rows_hold(fitted, name):
    rows = flights(200, 1)
    alone = fitted[name](rows.head(100))
    for column in ("sched", "weekend", "number", "carrier", "plane"):
        rows[column] = rows[column].where(rows.index < 100)
    assert fitted[name](rows)[:100] == pytest.approx(alone, abs=1e-12)


def test_linear_baseline_clips_a_wild_value_to_the_training_range(fitted):
    rows = pd.concat([flights(1, 1)] * 2)
    rows["number"] = [flights()["number"].max(), 1e12]
    greatest, wild = fitted["linear"](rows)
    assert greatest == wild


def test_trees_keep_more_than_255_categories_apart_from_failing():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"plane": random.integers(0, 300, 12_000).astype(str)})
    frame["late"] = (random.random(12_000) < np.where(frame["plane"].astype(int) % 2, 0.8, 0.2)).astype(int)
    predict = fit_baselines(frame, ["plane"], "late", ["gradient_boosting"], seed=0, kind=BINARY)["gradient_boosting"]
    assert auc(frame["late"], predict(frame)) > 0.7


def test_baselines_ignore_the_label_at_prediction(fitted):
    rows = flights(100, 1)
    flipped = rows.assign(late=1 - rows["late"])
    assert (fitted["linear"](rows) == fitted["linear"](flipped)).all()


@pytest.mark.parametrize(
    ("columns", "label", "names", "message"),
    [
        (FEATURES, "late", ["lienar"], "did you mean 'linear'"),
        (("numbr",), "late", ["linear"], "did you mean 'number'"),
        ((*FEATURES, "late"), "late", ["linear"], "no feature"),
        (FEATURES, "lat", ["linear"], "no feature"),
        ((), "late", ["linear"], "no feature column holds a value"),
        (("empty",), "late", ["gradient_boosting"], "no feature column holds a value"),
    ],
)
def test_baselines_of_wrong_columns_or_names_are_refused(columns, label, names, message):
    with pytest.raises(EvaluationError, match=message):
        fit_baselines(flights(100), columns, label, names, seed=0, kind=BINARY)


def test_baselines_of_one_class_or_a_missing_label_are_refused():
    for label, message in ((1, "labels are the same"), (np.nan, "not finite")):
        with pytest.raises(EvaluationError, match=message):
            fit_baselines(flights(100).assign(late=label), FEATURES, "late", ["prior"], seed=0, kind=BINARY)


def test_baseline_of_a_number_that_became_text_or_a_lost_column_is_refused(fitted):
    rows = flights(20, 1)
    with pytest.raises(EvaluationError, match="was numeric in training"):
        fitted["linear"](rows.assign(number="many"))
    with pytest.raises(EvaluationError, match="feature column is missing"):
        fitted["linear"](rows.drop(columns="carrier"))
