import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.tasks import probabilities as metrics
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import groups_to_show, jackknife_estimate, mean_estimate, without_spread
from trainworthy.lifecycle.tasks.metric import estimate


def grouped_estimate(metric: str, labels, probabilities, groups) -> Estimate:
    return estimate(BINARY.metrics[metric], *BINARY.checked(labels, probabilities), groups)


def clustered(groups: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and groups of unequal size; each group shifts its scores by its own effect.

    Within a group positives score 1 higher, and with the group's effect (sd 0.5) and the row's (sd 1) the
    true AUC is Phi(1 / sqrt(2 (1 + 0.25))).
    """
    random = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), random.integers(20, 80, groups))
    labels = (random.random(len(codes)) < 0.4).astype(int)
    scores = labels + random.normal(size=len(codes)) + 0.5 * random.normal(size=groups)[codes]
    return labels, 1 / (1 + np.exp(-scores)), codes


def test_mean_interval_of_clustered_rows_covers_where_the_iid_one_does_not():
    covered = naive = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        codes = np.repeat(np.arange(30), random.integers(20, 80, 30))
        values = random.normal(size=len(codes)) + random.normal(size=30)[codes]
        estimate = mean_estimate(values, codes)
        covered += estimate.low <= 0 <= estimate.high
        naive += abs(values.mean()) <= 1.96 * values.std() / np.sqrt(len(values))
    # Binomial standard error at 0.95 over 400 repetitions: 0.011.
    assert 0.92 <= covered / 400 <= 0.98
    assert naive / 400 < 0.6


def test_auc_interval_of_clustered_rows_covers():
    truth = norm.cdf(1 / np.sqrt(2 * 1.25))
    estimates = [grouped_estimate("auc", *clustered(30, seed)) for seed in range(200)]
    assert 0.91 <= np.mean([e.low <= truth <= e.high for e in estimates]) <= 0.99


def test_mean_interval_of_one_row_a_group_is_the_t_interval():
    values = np.random.default_rng(0).normal(size=40)
    estimate = mean_estimate(values, np.arange(40))
    low, high = student.interval(0.95, 39, loc=values.mean(), scale=values.std(ddof=1) / np.sqrt(40))
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))
    assert estimate.groups == 40


def test_auc_jackknife_equals_leaving_each_group_out_by_hand():
    labels, probabilities, codes = clustered(12, 3)
    probabilities = probabilities.round(2)
    left_out = [metrics.auc(labels[codes != g], probabilities[codes != g]) for g in range(12)]
    by_hand = jackknife_estimate(metrics.auc(labels, probabilities), np.array(left_out))
    found = grouped_estimate("auc", labels, probabilities, codes)
    assert found.value == pytest.approx(by_hand.value)
    assert found.standard_error == pytest.approx(by_hand.standard_error)


def test_calibration_error_estimate_has_the_metric_as_value_and_stays_in_range():
    labels, probabilities, codes = clustered(12, 3)
    found = grouped_estimate("calibration_error", labels, probabilities, codes)
    assert found.value == pytest.approx(metrics.calibration_error(labels, probabilities))
    assert 0 <= found.low < found.value < found.high <= 1


def test_estimate_depends_on_groups_and_not_on_their_names():
    labels, probabilities, codes = clustered(12, 3)
    names = pd.Series(pd.Timestamp("2013-01-01") + pd.to_timedelta(codes, unit="D"))
    for metric in BINARY.reported:
        plain = grouped_estimate(metric, labels, probabilities, codes)
        dated = grouped_estimate(metric, labels, probabilities, names.dt.date)
        assert plain == dated


def test_estimate_with_seven_groups_is_refused_and_with_eight_given():
    labels, probabilities, codes = clustered(8, 0)
    assert grouped_estimate("log_loss", labels, probabilities, codes).groups == 8
    few = codes < 7
    with pytest.raises(EvaluationError, match="at least 8 groups"):
        grouped_estimate("log_loss", labels[few], probabilities[few], codes[few])


def test_estimate_with_a_missing_group_is_refused():
    labels, probabilities, codes = clustered(9, 0)
    missing = codes.astype(float)
    missing[3] = np.nan
    for groups in (missing, codes[:-1]):
        with pytest.raises(EvaluationError, match="every row needs a group"):
            grouped_estimate("brier", labels, probabilities, groups)


def test_mean_of_a_value_that_is_not_finite_is_refused():
    with pytest.raises(EvaluationError, match="finite"):
        mean_estimate([*range(9), float("nan")], np.arange(10))


def test_auc_that_is_undefined_without_one_group_is_refused_and_told_as_shortage():
    labels = np.zeros(20)
    labels[0] = 1
    groups = np.repeat(np.arange(10), 2)
    with pytest.raises(EvaluationError, match="undefined"):
        grouped_estimate("auc", labels, np.linspace(0, 1, 20), groups)
    assert BINARY.shortage(labels, groups) == "label 1 occurs in 1 groups, fewer than 2"


@pytest.mark.parametrize(
    ("rows", "groups", "reason"),
    [(100, 10, "100 rows, fewer than 200"), (400, 7, "7 groups, fewer than 8"), (400, 10, "")],
)
def test_shortage_of_rows_or_groups_is_told(rows, groups, reason):
    assert BINARY.shortage(np.arange(rows) // groups % 2, np.arange(rows) % groups, 200) == reason


@pytest.mark.parametrize(("spare", "needed"), [(0.02, 183), (0.05, 72), (0.003, 1228), (0.001, None), (0.0, None)])
def test_groups_that_are_all_alike_and_would_show_it_are_as_many_as_their_bound_says(spare, needed):
    def alike(groups: int) -> Estimate:
        plain = Estimate(value=1.0, low=1.0, high=1.0, standard_error=0.0, groups=groups)
        return without_spread(plain, 1.0, groups)

    assert groups_to_show(alike(30), spare) == needed
    if needed is not None:
        assert alike(needed).low > 1 - spare >= alike(needed - 1).low


def test_groups_that_differ_narrow_an_interval_with_their_square_root():
    found = Estimate(value=0.9, low=0.88, high=0.92, standard_error=0.01, groups=30)
    assert groups_to_show(found, 0.01) == 121
    assert groups_to_show(found.model_copy(update={"low": 0.9, "high": 0.9}), 0.01) is None
