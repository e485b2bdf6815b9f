import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks.platt import apply_platt, fit_platt
from trainworthy.lifecycle.tasks.probabilities import calibration_error, log_loss


def overconfident(rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn at logit z - 1, probabilities claimed at logit 2 z."""
    random = np.random.default_rng(0)
    logits = random.normal(size=rows)
    return (random.random(rows) < expit(logits - 1)).astype(int), expit(2 * logits)


def test_platt_of_an_overconfident_model_finds_slope_and_intercept():
    labels, probabilities = overconfident()
    state = fit_platt(labels, probabilities)
    assert state["slope"] == pytest.approx(0.5, abs=0.03)
    assert state["intercept"] == pytest.approx(-1, abs=0.05)
    mended = apply_platt(probabilities, state)
    assert log_loss(labels, mended).mean() < log_loss(labels, probabilities).mean()
    assert calibration_error(labels, mended) < 0.02 < calibration_error(labels, probabilities)


def test_platt_equals_unpenalised_logistic_regression():
    labels, probabilities = overconfident()
    logits = np.log(probabilities / (1 - probabilities))[:, None]
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(logits, labels)
    state = fit_platt(labels, probabilities)
    # The smoothed targets differ from the labels by 1 / 20,000.
    assert state["slope"] == pytest.approx(model.coef_[0, 0], abs=1e-3)
    assert state["intercept"] == pytest.approx(model.intercept_[0], abs=1e-3)


def test_platt_of_probabilities_of_exactly_zero_and_one_stays_finite():
    state = fit_platt([0, 1, 0, 1, 1], [0.0, 1.0, 1.0, 0.0, 1.0])
    assert np.isfinite(apply_platt([0.0, 1.0], state)).all()


def test_platt_of_separated_labels_stays_finite():
    state = fit_platt([0] * 50 + [1] * 50, np.linspace(0.01, 0.99, 100))
    assert state["slope"] > 1
    calibrated = apply_platt(np.array([0.01, 0.99]), state)
    assert 0 < calibrated[0] < 0.05 < 0.95 < calibrated[1] < 1


def test_platt_of_a_backward_model_keeps_its_negative_slope():
    labels, probabilities = overconfident()
    assert fit_platt(labels, 1 - probabilities)["slope"] == pytest.approx(-0.5, abs=0.03)


def test_platt_of_a_constant_probability_mends_only_the_level():
    state = fit_platt([0] * 75 + [1] * 25, [0.6] * 100)
    assert state["slope"] == 1.0
    assert apply_platt([0.6], state) == pytest.approx([0.25], abs=0.01)


def test_platt_of_one_class_is_refused():
    with pytest.raises(EvaluationError, match="labels are the same"):
        fit_platt([1, 1, 1], [0.2, 0.5, 0.6])


@pytest.mark.parametrize("state", [{"slope": 1.0}, {"slope": float("nan"), "intercept": 0.0}, {}])
def test_apply_platt_with_a_damaged_state_is_refused(state):
    with pytest.raises(EvaluationError, match="finite slope"):
        apply_platt([0.5], state)


def test_apply_platt_to_a_probability_out_of_range_is_refused():
    with pytest.raises(EvaluationError, match="outside"):
        apply_platt([0.5, 1.5], {"slope": 1.0, "intercept": 0.0})


def test_apply_platt_with_the_neutral_state_changes_nothing():
    probabilities = np.linspace(0.001, 0.999, 50)
    assert apply_platt(probabilities, {"slope": 1.0, "intercept": 0.0}) == pytest.approx(probabilities)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=2, max_size=30))
def test_platt_of_any_valid_rows_gives_probabilities(pairs):
    labels, probabilities = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if labels.min() < labels.max():
        calibrated = apply_platt(probabilities, fit_platt(labels, probabilities))
        assert ((calibrated >= 0) & (calibrated <= 1)).all()
