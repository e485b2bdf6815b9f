import numpy as np
import pytest

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import paired_gain
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import estimate


def days(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, the probabilities that they were drawn with, and 30 groups whose base rates differ."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(30), 100)
    truth = 1 / (1 + np.exp(-(random.normal(size=3000) + random.normal(size=30)[groups] - 1)))
    return (random.random(3000) < truth).astype(int), truth, groups


@pytest.mark.parametrize("metric", ["log_loss", "brier"])
def test_gain_of_the_true_probabilities_over_the_prior_is_above_zero(metric):
    labels, truth, groups = days()
    comparison = paired_gain(BINARY, labels, truth, np.full(3000, labels.mean()), groups, metric, name="prior")
    assert comparison.gain.low > 0
    assert (comparison.reference, comparison.metric, comparison.gain.groups) == ("prior", metric, 30)


def test_gain_of_a_worse_candidate_is_below_zero_and_mirrors_the_better_one():
    labels, truth, groups = days()
    worse = np.clip(1 - truth, 0, 1)
    one = paired_gain(BINARY, labels, worse, truth, groups, "log_loss", name="x").gain
    other = paired_gain(BINARY, labels, truth, worse, groups, "log_loss", name="x").gain
    assert one.high < 0
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))


def test_gain_over_itself_is_exactly_zero():
    labels, truth, groups = days()
    gain = paired_gain(BINARY, labels, truth, truth, groups, "log_loss", name="x").gain
    assert (gain.low, gain.value, gain.high) == (0.0, 0.0, 0.0)


def test_paired_interval_is_narrower_than_the_difference_of_two():
    labels, truth, groups = days()
    other = 0.9 * truth + 0.05
    paired = paired_gain(BINARY, labels, truth, other, groups, "log_loss", name="x").gain
    alone = [estimate(BINARY.metrics["log_loss"], labels, p, groups).standard_error for p in (truth, other)]
    assert paired.standard_error < 0.5 * np.hypot(*alone)


def test_gain_with_a_missing_prediction_is_refused():
    labels, truth, groups = days()
    holed = truth.copy()
    holed[5] = np.nan
    for candidate, reference in ((truth, holed), (holed, truth)):
        with pytest.raises(EvaluationError, match="not finite"):
            paired_gain(BINARY, labels, candidate, reference, groups, "log_loss", name="x")
