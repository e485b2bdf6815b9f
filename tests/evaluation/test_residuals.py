import numpy as np
import pandas as pd
import pytest
from known import known

from trainworthy.lifecycle.evaluation.residuals import autocorrelation, residuals
from trainworthy.lifecycle.protocol.figures import LossAxis, Residuals
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import mean_estimate
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.probabilities import log_loss
from trainworthy.lifecycle.tasks.segmentation import Segmentation

ROWS, DAYS = 6_000, 40


def drawn(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Predictions of 40 days, and the rows' features."""
    random = np.random.default_rng(seed)
    truth = random.beta(2, 3, ROWS)
    days = pd.date_range("2024-01-01", periods=DAYS).strftime("%Y-%m-%d").to_numpy()
    frame = pd.DataFrame({"row": np.arange(ROWS), "group": days[np.arange(ROWS) % DAYS], "candidate": truth})
    frame["label"] = (random.random(ROWS) < truth).astype(int)
    frame["prior"], frame["linear"] = frame["label"].mean(), 0.5 * truth + 0.5 * frame["label"].mean()
    wind = random.gamma(2, 5, ROWS)
    wind[::49] = np.nan
    features = {"wind": wind, "origin": random.choice(["EWR", "JFK", "LGA"], ROWS), "constant": 1.0}
    return frame, pd.DataFrame(features)


def looked(frame: pd.DataFrame, features: pd.DataFrame, *, ordered: bool = True) -> Residuals:
    return known(residuals(frame, features, BINARY, ["prior", "linear"], ordered=ordered))


def axis(found: Residuals, by: str) -> LossAxis:
    return next(one for one in found.axes if one.by == by)


def test_residuals_find_a_planted_bin_and_nothing_in_its_healthy_twin():
    frame, features = drawn()
    healthy = axis(looked(frame, features), "wind")
    assert all(part.gain is None or part.gain.high > 0 for part in healthy.parts)
    bad = (features["wind"] > features["wind"].quantile(0.9)).to_numpy()
    planted = frame.assign(candidate=np.where(bad, 1 - frame["candidate"], frame["candidate"]))
    found = looked(planted, features)
    worst = max(axis(found, "wind").parts, key=lambda part: known(part.loss).value)
    assert worst.name.startswith("wind >")
    assert known(worst.gain).high < 0
    # The feature by which the loss differs most comes first.
    assert next(one.by for one in found.axes if one.by in features) == "wind"


def test_residuals_parts_equal_mean_estimate_and_hold_every_row_once():
    frame, features = drawn()
    frame["weight"] = np.random.default_rng(1).gamma(2, 1, ROWS)
    found = looked(frame, features)
    for one in found.axes:
        assert sum(part.rows for part in one.parts) == ROWS, one.by
    rows = frame[features["origin"] == "JFK"]
    part = next(part for part in axis(found, "origin").parts if part.name == "origin=JFK")
    loss = log_loss(rows["label"], rows["candidate"])
    expected = mean_estimate(loss, rows["group"], rows["weight"].to_numpy())
    assert known(part.loss).model_dump() == pytest.approx(expected.model_dump())
    gain = log_loss(rows["label"], rows["linear"]) - loss
    assert known(part.gain).model_dump() == pytest.approx(
        mean_estimate(gain, rows["group"], rows["weight"].to_numpy()).model_dump()
    )


def test_residuals_name_the_best_baseline_and_missing_values():
    frame, features = drawn()
    found = looked(frame, features)
    assert found.baseline == "linear"
    assert axis(found, "wind").parts[-1].name == "wind missing"
    assert {one.by for one in found.axes} == {"group", "answer", "wind", "origin"}


@pytest.mark.parametrize(("by", "of_the_first"), [(0.1, "wind <= 0."), (1000, "wind <= "), (1e6, ",")])
def test_residuals_name_ends_of_parts_without_powers_of_ten(by, of_the_first):
    frame, features = drawn()
    parts = axis(looked(frame, features[["wind"]] * by), "wind").parts
    assert not any("e+" in part.name for part in parts)
    assert any(of_the_first in part.name for part in parts)


def test_residuals_of_a_part_in_few_groups_say_why_it_has_no_interval():
    frame, features = drawn()
    features.loc[frame["group"] < "2024-01-06", "origin"] = "XXX"
    few = next(part for part in axis(looked(frame, features), "origin").parts if part.name == "origin=XXX")
    assert (few.loss, few.gain, few.groups) == (None, None, 5)
    assert "fewer than 8" in few.reason


def test_residuals_worst_rows_are_numbers_of_rows():
    frame, features = drawn()
    frame.loc[17, ["candidate", "label"]] = [0.999999, 0]
    frame["row"] += 100
    assert looked(frame, features).worst[0].row == 117


def test_residuals_over_time_show_the_period_that_got_worse():
    frame, features = drawn()
    late = frame["group"] >= "2024-01-31"
    planted = looked(frame.assign(candidate=np.where(late, 1 - frame["candidate"], frame["candidate"])), features)
    periods = axis(planted, "group").parts
    assert [part.groups for part in periods] == [8] * 5
    assert known(periods[-1].gain).high < 0 < known(periods[0].gain).low
    alike = known(planted.autocorrelation)
    assert alike.lag_one > 0.5
    assert alike.widened.low < alike.gain.low
    assert [one.name for one in planted.by_group] == sorted(frame["group"].unique())


def test_residuals_without_an_order_in_time_say_so():
    frame, features = drawn()
    found = looked(frame, features, ordered=False)
    assert found.autocorrelation is None
    assert found.reasons
    assert "group" not in {one.by for one in found.axes}


def test_autocorrelation_of_independent_groups_widens_nothing_much_and_of_a_walk_does():
    random = np.random.default_rng(0)
    codes = np.repeat(np.arange(200), 20)
    independent = known(autocorrelation(random.normal(size=200)[codes] + random.normal(size=4_000), codes))
    assert 1 <= independent.factor < 1.2
    series = np.zeros(200)
    for place in range(1, 200):
        series[place] = 0.7 * series[place - 1] + random.normal()
    alike = known(autocorrelation(series[codes], codes))
    assert alike.lag_one == pytest.approx(0.7, abs=0.15)
    assert alike.factor == pytest.approx(np.sqrt((1 + alike.lag_one) / (1 - alike.lag_one)))


def test_autocorrelation_of_few_groups_or_equal_gains_is_none():
    assert autocorrelation(np.arange(7.0), np.arange(7)) is None
    assert autocorrelation(np.ones(20), np.arange(20)) is None


def test_residuals_of_many_features_keep_those_that_tell_most_and_count_the_rest():
    frame, features = drawn()
    random = np.random.default_rng(3)
    many = features.assign(**{f"noise{place}": random.normal(size=ROWS) for place in range(25)})
    found = looked(frame, many)
    assert (len(found.axes), found.other_features) == (2 + 20, 7)


def test_residuals_of_classes_have_an_axis_for_each_and_of_masks_none_of_answers():
    random = np.random.default_rng(0)
    answers = random.dirichlet([1, 1, 1], 900)
    frame = pd.DataFrame({"row": np.arange(900), "group": np.arange(900) % 20, "label": random.integers(0, 3, 900)})
    for model in ("candidate", "prior"):
        frame[[f"{model}:{name}" for name in "xyz"]] = answers
    found = known(residuals(frame, None, Multiclass(("x", "y", "z")), ["prior"], ordered=True))
    assert [one.by for one in found.axes] == ["group", "answer x", "answer y", "answer z"]
    assert Segmentation(("a", "b")).metrics["log_loss"].rows is not None
