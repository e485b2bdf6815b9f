import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks import probabilities as metrics


def scored(rows: int = 5000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn with exactly the given probabilities."""
    random = np.random.default_rng(seed)
    probabilities = random.beta(1, 3, rows)
    return (random.random(rows) < probabilities).astype(int), probabilities


def test_log_loss_of_rows_equals_sklearn():
    labels, probabilities = scored()
    losses = metrics.log_loss(labels, probabilities)
    assert losses.shape == labels.shape
    assert losses.mean() == pytest.approx(sklearn_log_loss(labels, probabilities), abs=1e-9)


def test_log_loss_of_a_certain_mistake_is_large_and_finite():
    assert metrics.log_loss([1, 0], [0.0, 1.0]) == pytest.approx([16.118, 16.118], abs=1e-3)
    assert metrics.log_loss([1, 0], [1.0, 0.0]) == pytest.approx([0, 0], abs=1e-6)


def test_brier_is_the_squared_error():
    assert metrics.brier([1, 0], [0.75, 0.5]) == pytest.approx([0.0625, 0.25])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=40))
def test_auc_with_ties_equals_sklearn(pairs):
    labels, scores = np.array(pairs).T
    if labels.min() == labels.max():
        with pytest.raises(EvaluationError, match="labels are the same"):
            metrics.auc(labels, scores / 5)
    else:
        assert metrics.auc(labels, scores / 5) == pytest.approx(roc_auc_score(labels, scores))


def test_calibration_error_of_a_calibrated_model_is_small_and_of_a_shifted_one_is_the_shift():
    labels, probabilities = scored(50_000)
    assert metrics.calibration_error(labels, probabilities) < 0.01
    assert metrics.calibration_error(labels, probabilities * 0.8 + 0.2) > 0.1


def test_calibration_error_of_a_constant_probability_is_its_distance_from_the_share():
    assert metrics.calibration_error([0, 0, 0, 1], [0.5] * 4) == pytest.approx(0.25)


def test_reliability_bins_hold_equal_rows_and_keep_ties_together():
    labels, probabilities = scored(1000)
    assert [row.rows for row in metrics.reliability(labels, probabilities)] == [100] * 10
    (only,) = metrics.reliability([0, 1, 0, 0], [0.3] * 4)
    assert (only.predicted, only.observed, only.rows) == (pytest.approx(0.3), 0.25, 4)


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([0, 1], [0.5, float("nan")], "not finite"),
        ([0, 1], [0.5, float("inf")], "not finite"),
        ([0, 1], [0.5, 1.01], "outside"),
        ([0, 1], [0.5, -0.01], "outside"),
        ([0, 2], [0.5, 0.5], "neither 0 nor 1"),
        ([0, None], [0.5, 0.5], "not finite"),
        ([0, 1, 1], [0.5, 0.5], "differ in length"),
        ([], [], r"shape \(N,\)"),
        ([[0, 1]], [[0.5, 0.5]], r"shape \(N,\)"),
        (["a", "b"], [0.5, 0.5], "not all numbers"),
        (pd.array([0, None], dtype="Int64"), [0.5, 0.5], "not finite"),
    ],
)
@pytest.mark.parametrize("metric", [metrics.log_loss, metrics.brier, metrics.auc, metrics.calibration_error])
def test_metric_of_bad_input_is_refused(metric, labels, probabilities, message):
    with pytest.raises(EvaluationError, match=message):
        metric(labels, probabilities)
