import numpy as np
import pytest
from known import known
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.calibration import (
    _joined_bins,
    calibration,
    calibrations,
    debiased_error,
    intercept,
    reliability_bands,
    slope,
    squared_error_left_out,
)
from trainworthy.lifecycle.tasks.interval import jackknife_estimate
from trainworthy.lifecycle.tasks.kind import MOST_CLAIMS, Claim
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.probabilities import calibration_error, equal_mass_bins
from trainworthy.lifecycle.tasks.regression import Regression


def drawn(rows: int = 3_000, groups: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What came true of rows, by the probabilities beside, with an effect of the group that these know."""
    random = np.random.default_rng(seed)
    codes = np.arange(rows) % groups
    probability = expit(random.normal(size=rows) - 1 + 0.3 * random.normal(size=groups)[codes])
    return (random.random(rows) < probability).astype(float), probability, codes


def stretched(probability: np.ndarray, by: float, shift: float = 0.0) -> np.ndarray:
    return expit(by * logit(probability) + shift)


def test_debiased_error_of_true_probabilities_holds_zero_where_the_plain_one_does_not():
    came_true, probability, codes = drawn()
    found = debiased_error(came_true, probability, codes)
    assert found.low == 0
    assert found.high > found.value
    assert found.value < calibration_error(came_true, probability)


def test_debiased_error_of_probabilities_that_are_too_sure_is_shown():
    came_true, probability, codes = drawn(rows=20_000)
    assert debiased_error(came_true, stretched(probability, 2.0), codes).low > 0.05


def test_debiased_error_equals_kumars_where_every_row_is_a_group():
    came_true, probability, _ = drawn(rows=600)
    bins = equal_mass_bins(probability)
    expected = 0.0
    for code in range(10):
        off = (probability - came_true)[bins == code]
        # Kumar et al. take bins of one probability, so that a row's variance is that of its label.
        expected += len(off) / 600 * (off.mean() ** 2 - off.var(ddof=1) / len(off))
    assert squared_error_left_out(came_true, probability, np.arange(600))[0] == pytest.approx(expected)


def test_debiased_error_without_a_group_is_that_of_the_other_rows():
    came_true, probability, codes = drawn()
    # Probabilities of ten values: the bins stay the same whichever rows are left out.
    probability = probability.round(1)
    _, left_out = squared_error_left_out(came_true, probability, codes)
    others = codes != 7
    squares, kept = 0.0, codes[others]
    for value in np.unique(equal_mass_bins(probability)):
        inside = equal_mass_bins(probability)[others] == value
        off = np.bincount(kept[inside], weights=(probability - came_true)[others][inside], minlength=30)
        rows = np.bincount(kept[inside], minlength=30)
        pairs = (off.sum() ** 2 - (off**2).sum()) / (rows.sum() ** 2 - (rows**2).sum())
        squares += rows.sum() / others.sum() * pairs
    assert left_out[7] == pytest.approx(squares)


def test_weights_count_as_rows_that_come_again():
    came_true, probability, codes = drawn()
    weights = np.where(np.arange(len(codes)) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(len(codes)), weights.astype(int))
    for measure in (slope, intercept):
        weighed = measure(came_true, probability, codes, weights)
        assert weighed.value == pytest.approx(
            measure(came_true[twice], probability[twice], codes[twice]).value, abs=1e-6
        )


def test_slope_and_intercept_equal_logistic_regression_with_and_without_each_group():
    came_true, probability, codes = drawn()
    claimed = stretched(probability, 1.5, 0.4)

    def fitted(rows: np.ndarray) -> float:
        model = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(claimed[rows])[:, None], came_true[rows])
        return float(model.coef_[0, 0])

    found = slope(came_true, claimed, codes)
    assert found.value == pytest.approx(fitted(np.full(len(codes), True)), abs=1e-5)
    exact = jackknife_estimate(found.value, np.array([fitted(codes != group) for group in range(30)]))
    assert found.standard_error == pytest.approx(exact.standard_error, rel=0.02)
    level = intercept(came_true, claimed, codes)
    # At the maximum of its likelihood the claims add up to what came true.
    assert expit(logit(claimed) + level.value).sum() == pytest.approx(came_true.sum(), rel=1e-6)


def test_slope_of_true_probabilities_holds_one_and_of_those_too_sure_is_below():
    came_true, probability, codes = drawn()
    healthy, sure = slope(came_true, probability, codes), slope(came_true, stretched(probability, 2.0), codes)
    assert healthy.low < 1 < healthy.high
    assert sure.high < 1


def test_intercept_of_probabilities_that_are_too_high_is_below_zero():
    came_true, probability, codes = drawn()
    healthy = intercept(came_true, probability, codes)
    assert healthy.low < 0 < healthy.high
    assert intercept(came_true, stretched(probability, 1.0, 0.8), codes).high < 0


def test_bands_hold_every_row_once_and_their_share():
    came_true, probability, codes = drawn()
    bands = reliability_bands(came_true, probability, codes)
    assert sum(band.rows for band in bands) == 3_000
    assert all(known(band.observed).low <= band.share <= known(band.observed).high for band in bands)
    assert np.average([band.share for band in bands], weights=[band.rows for band in bands]) == pytest.approx(
        came_true.mean()
    )


def test_a_band_in_which_nothing_came_true_has_the_bound_of_its_groups():
    _, probability, codes = drawn()
    bands = reliability_bands(np.zeros(3_000), probability, codes)
    for band in bands:
        assert (known(band.observed).low, known(band.observed).high) == pytest.approx(
            (0, 1 - 0.025 ** (1 / band.groups))
        )


def test_calibration_of_few_groups_says_why_there_is_no_interval():
    came_true, probability, codes = drawn(groups=7)
    found = calibration("candidate", Claim("label 1", came_true == 1, probability, None), codes)
    assert (found.error, found.intercept, found.slope) == (None, None, None)
    assert len(found.reasons) == 3
    assert all(band.observed is None and band.reason for band in found.bands)
    assert found.groups == 7


def test_calibration_of_one_probability_has_no_slope():
    came_true, _, codes = drawn()
    found = calibration("candidate", Claim("label 1", came_true == 1, np.full(3_000, 0.3), None), codes)
    assert found.slope is None
    assert found.intercept is not None
    assert len(found.bands) == 1


def test_slope_of_what_never_came_true_is_refused():
    _, probability, codes = drawn()
    with pytest.raises(EvaluationError):
        slope(np.zeros(3_000), probability, codes)


def test_slope_of_separated_rows_is_refused():
    _, probability, codes = drawn()
    with pytest.raises(EvaluationError):
        slope((probability > 0.3).astype(float), probability, codes)


def test_claims_of_classes_are_the_predicted_one_and_each():
    kind = Multiclass(("x", "y", "z"))
    labels, answers = np.array([0, 1, 1, 2]), np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0, 1, 0], [0.1, 0.2, 0.7]])
    first, second = kind.claims(labels, answers)[:2]
    assert (first.name, first.so.tolist(), first.decided) == ("predicted class", [True, False, True, True], None)
    assert (second.name, known(second.decided).tolist()) == ("class y", [False, False, True, False])


def test_claims_of_labels_are_one_each_and_numbers_make_none():
    kind = Multilabel(("x", "y"))
    assert [one.name for one in kind.claims(np.array([[1.0, 0], [1, 1]]), np.full((2, 2), 0.6))] == [
        "label x",
        "label y",
    ]
    assert Regression().claims(np.zeros(3), np.zeros(3)) == ()


def test_debiased_error_of_few_rows_above_a_common_probability_is_measured():
    random = np.random.default_rng(0)
    codes, claimed = np.arange(3_000) % 30, np.zeros(3_000)
    claimed[[7, 37, 8]] = 0.2
    rare = np.zeros(3_000)
    assert debiased_error(rare, claimed, codes).high < 0.01
    # All rows above lie in two groups, and these are wrong.
    claimed[(codes < 2) & (random.random(3_000) < 0.9)] = 0.9
    assert debiased_error(rare, claimed, codes).value > 0.02


@pytest.mark.parametrize("bins", [[0, 1, 2], [2, 0, 0, 1, 1, 1, 3], [0, 1, 1, 1, 2, 2, 2, 3]])
def test_bins_keep_their_order_when_small_ones_are_joined(bins):
    rows = np.array(bins)
    joined = _joined_bins(rows, np.arange(len(rows)))
    order = np.argsort(rows, kind="stable")
    assert (np.diff(joined[order]) >= 0).all()
    assert all(np.count_nonzero(joined == one) >= 3 for one in range(int(joined.max()) + 1))


def many_labels(rare_claim: float, count: int = 20, rows: int = 3_000) -> tuple[Claim, ...]:
    """Claims of labels, all calibrated but the rarest four, of which `rare_claim` is said."""
    random = np.random.default_rng(0)
    shares = np.r_[np.linspace(0.5, 0.2, count - 4), np.full(4, 0.02)]
    answers = np.tile(shares, (rows, 1)) + 0.01 * random.random((rows, count))
    labels = (random.random((rows, count)) < answers).astype(float)
    answers[:, -4:] += rare_claim - 0.02
    return Multilabel(tuple(f"l{place}" for place in range(count))).claims(labels, answers)


def test_the_claim_that_is_farthest_off_is_measured_where_it_decides_however_rare():
    codes = np.arange(3_000) % 30
    wrong = calibrations("candidate", many_labels(0.9), codes, decides=True)
    assert len(wrong) == MOST_CLAIMS + 1
    assert max(known(one.error).value for one in wrong) > 0.8
    assert known(wrong[-1].error).low > 0.8
    healthy = calibrations("candidate", many_labels(0.02), codes, decides=True)
    assert max(known(one.error).low for one in healthy) < 0.02
    told = calibrations("candidate", many_labels(0.9), codes, decides=False)
    assert len(told) == MOST_CLAIMS


def test_a_claim_that_cannot_be_measured_is_kept_where_it_decides():
    found = calibrations("candidate", many_labels(0.02), np.arange(3_000) % 7, decides=True)
    assert len(found) == MOST_CLAIMS + 1
    assert found[-1].error is None


def test_a_class_without_rows_is_a_claim():
    found = Multiclass(("x", "y", "z")).claims(np.array([0, 1, 1]), np.full((3, 3), 1 / 3))
    assert [one.name for one in found] == ["predicted class", "class y", "class x", "class z"]
