"""Each metric equals scikit-learn's, or one written out in float64, and so does its value without a group."""

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.interval import group_codes
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import estimate, gain, sums_without_each, value, without_each

ROWS, GROUPS = 600, 12
LEVELS = (0.1, 0.5, 0.9)
BINARY = kind_of(Target())
CLASSES = kind_of(Target(kind="multiclass", classes=("a", "b", "c", "rare")))
LABELS = kind_of(Target(kind="multilabel", classes=("a", "b", "c", "never")))
NUMBER = kind_of(Target(kind="regression"))
QUANTILES = kind_of(Target(kind="regression", quantiles=LEVELS))


def binary(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    # Rounded, so that scores tie.
    probabilities = random.beta(1, 2, ROWS).round(2)
    return (random.random(ROWS) < probabilities).astype(float), probabilities


def classes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(ROWS, 4)) * 1.5 - np.array([0, 0, 0, 3])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return (random.random(ROWS)[:, None] > probabilities.cumsum(axis=1)).sum(axis=1).clip(0, 3), probabilities


def labels_of_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which one is in no row, and is predicted for none."""
    random = np.random.default_rng(seed)
    probabilities = random.beta([1, 2, 1, 1], [2, 2, 1, 9], (ROWS, 4)).round(2)
    labels = (random.random((ROWS, 4)) < probabilities).astype(float)
    labels[:, 3], probabilities[:, 3] = 0, probabilities[:, 3] / 3
    return labels, probabilities


def of_label(formula, place):
    return lambda y, p, w: formula(y[:, place], p[:, place], w)


def of_labels(formula, *, known=range(4)):
    """The mean over labels of a figure of each."""
    return lambda y, p, w: np.mean([formula(y[:, place], p[:, place], w) for place in known])


def numbers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = 1e6 + np.exp(random.normal(size=ROWS))
    return labels, labels + random.normal(size=ROWS)


def quantiles(seed: int) -> tuple[np.ndarray, np.ndarray]:
    labels, middle = numbers(seed)
    return labels, middle[:, None] + np.array([-1.0, 0.0, 1.5])


def f1(which):
    def of_class(y, p, w):
        found: Any = sklearn.f1_score(y, p.argmax(1), labels=range(4), average=None, sample_weight=w)  # pyright: ignore
        return found[which]

    return of_class


def recall(which):
    def of_class(y, p, w):
        found: Any = sklearn.recall_score(y, p.argmax(1), labels=range(4), average=None, sample_weight=w)  # pyright: ignore
        return found[which]

    return of_class


ORACLES = [
    (BINARY, binary, "log_loss", lambda y, p, w: sklearn.log_loss(y, p.clip(1e-7, 1 - 1e-7), sample_weight=w)),
    (BINARY, binary, "brier", lambda y, p, w: sklearn.brier_score_loss(y, p, sample_weight=w)),
    (BINARY, binary, "auc", lambda y, p, w: sklearn.roc_auc_score(y, p, sample_weight=w)),
    (BINARY, binary, "average_precision", lambda y, p, w: sklearn.average_precision_score(y, p, sample_weight=w)),
    (BINARY, binary, "accuracy", lambda y, p, w: sklearn.accuracy_score(y, p >= 0.5, sample_weight=w)),
    (BINARY, binary, "precision", lambda y, p, w: sklearn.precision_score(y, p >= 0.5, sample_weight=w)),
    (BINARY, binary, "recall", lambda y, p, w: sklearn.recall_score(y, p >= 0.5, sample_weight=w)),
    (BINARY, binary, "f1", lambda y, p, w: sklearn.f1_score(y, p >= 0.5, sample_weight=w)),
    (BINARY, binary, "balanced_accuracy",
     lambda y, p, w: sklearn.balanced_accuracy_score(y, p >= 0.5, sample_weight=w)),
    (CLASSES, classes, "log_loss", lambda y, p, w: sklearn.log_loss(y, p, labels=range(4), sample_weight=w)),
    (CLASSES, classes, "brier", lambda y, p, w: np.average(((np.eye(4)[y] - p) ** 2).sum(1), weights=w)),
    (CLASSES, classes, "accuracy", lambda y, p, w: sklearn.accuracy_score(y, p.argmax(1), sample_weight=w)),
    (CLASSES, classes, "balanced_accuracy",
     lambda y, p, w: sklearn.balanced_accuracy_score(y, p.argmax(1), sample_weight=w)),
    (CLASSES, classes, "macro_f1", lambda y, p, w: sklearn.f1_score(y, p.argmax(1), average="macro", sample_weight=w)),
    (CLASSES, classes, "f1[b]", f1(1)),
    (CLASSES, classes, "recall[rare]", recall(3)),
    (LABELS, labels_of_rows, "log_loss", of_labels(lambda y, p, w: sklearn.log_loss(
        y, p.clip(1e-7, 1 - 1e-7), labels=[0, 1], sample_weight=w))),
    (LABELS, labels_of_rows, "brier", of_labels(lambda y, p, w: sklearn.brier_score_loss(
        y, p, sample_weight=w, pos_label=1))),
    (LABELS, labels_of_rows, "macro_auc",
     lambda y, p, w: sklearn.roc_auc_score(y[:, :3], p[:, :3], average="macro", sample_weight=w)),
    (LABELS, labels_of_rows, "macro_f1", lambda y, p, w: sklearn.f1_score(
        y, p >= 0.5, average="macro", sample_weight=w, zero_division=np.nan)),  # pyright: ignore
    (LABELS, labels_of_rows, "micro_f1", lambda y, p, w: sklearn.f1_score(
        y, p >= 0.5, average="micro", sample_weight=w)),
    (LABELS, labels_of_rows, "subset_accuracy", lambda y, p, w: sklearn.accuracy_score(y, p >= 0.5, sample_weight=w)),
    (LABELS, labels_of_rows, "hamming_loss", lambda y, p, w: sklearn.hamming_loss(y, p >= 0.5, sample_weight=w)),
    (LABELS, labels_of_rows, "recall[b]",
     of_label(lambda y, p, w: sklearn.recall_score(y, p >= 0.5, sample_weight=w), 1)),
    (LABELS, labels_of_rows, "precision[b]",
     of_label(lambda y, p, w: sklearn.precision_score(y, p >= 0.5, sample_weight=w), 1)),
    (LABELS, labels_of_rows, "f1[c]", of_label(lambda y, p, w: sklearn.f1_score(y, p >= 0.5, sample_weight=w), 2)),
    (LABELS, labels_of_rows, "auc[a]", of_label(lambda y, p, w: sklearn.roc_auc_score(y, p, sample_weight=w), 0)),
    (NUMBER, numbers, "squared_error", lambda y, p, w: sklearn.mean_squared_error(y, p, sample_weight=w)),
    (NUMBER, numbers, "rmse", lambda y, p, w: sklearn.root_mean_squared_error(y, p, sample_weight=w)),
    (NUMBER, numbers, "mae", lambda y, p, w: sklearn.mean_absolute_error(y, p, sample_weight=w)),
    (NUMBER, numbers, "r2", lambda y, p, w: sklearn.r2_score(y, p, sample_weight=w)),
    (NUMBER, numbers, "bias", lambda y, p, w: abs(np.average(p - y, weights=w))),
    (NUMBER, numbers, "median_absolute_error", lambda y, p, w: sklearn.median_absolute_error(y, p, sample_weight=w)),
    (QUANTILES, quantiles, "pinball[0.1]",
     lambda y, p, w: sklearn.mean_pinball_loss(y, p[:, 0], alpha=0.1, sample_weight=w)),
    (QUANTILES, quantiles, "pinball", lambda y, p, w: np.mean(
        [sklearn.mean_pinball_loss(y, p[:, at], alpha=one, sample_weight=w) for at, one in enumerate(LEVELS)])),
    (QUANTILES, quantiles, "coverage[0.9]", lambda y, p, w: np.average(y <= p[:, 2], weights=w)),
    (QUANTILES, quantiles, "interval_coverage", lambda y, p, w: np.average((p[:, 0] <= y) & (y <= p[:, 2]), weights=w)),
    (QUANTILES, quantiles, "interval_width", lambda y, p, w: np.average(p[:, 2] - p[:, 0], weights=w)),
    (QUANTILES, quantiles, "mae", lambda y, p, w: sklearn.mean_absolute_error(y, p[:, 1], sample_weight=w)),
]  # fmt: skip
NAMES = [f"{kind.name}-{metric}" for kind, _, metric, _ in ORACLES]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "drawn", "name", "oracle"), ORACLES, ids=NAMES)
def test_metric_is_the_known_one_with_weights_and_without_a_group(kind: Kind, drawn, name, oracle, weighted):
    random, metric = np.random.default_rng(7), kind.metrics[name]
    labels, answers = kind.checked(*drawn(1))
    groups = random.integers(0, GROUPS, ROWS)
    # Half of the rows lie in one group, as on a day of storms.
    groups[: ROWS // 2] = 0
    weights = random.gamma(1.0, size=ROWS) if weighted else None
    # A weighed median lies between two rows; scikit-learn takes one of them.
    tolerance = 1e-2 if weighted and name == "median_absolute_error" else 1e-9
    assert value(metric, labels, answers, weights) == pytest.approx(oracle(labels, answers, weights), abs=tolerance)
    found = estimate(metric, labels, answers, groups, weights)
    assert found.value == pytest.approx(oracle(labels, answers, weights), abs=tolerance)
    assert found.low <= found.value <= found.high
    if metric.rows is None:
        codes = group_codes(groups, ROWS)
        _, left_out = without_each(metric, labels, answers, codes, weights)
        for group in (0, 3):
            kept = codes != group
            some = None if weights is None else weights[kept]
            assert left_out[group] == pytest.approx(oracle(labels[kept], answers[kept], some), abs=tolerance)


def test_calibration_errors_bins_are_fixed_and_weights_count():
    labels, answers = binary(3)
    metric = BINARY.metrics["calibration_error"]
    twice = value(metric, np.concatenate([labels, labels]), np.concatenate([answers, answers]))
    assert value(metric, labels, answers, np.full(ROWS, 2.0)) == pytest.approx(twice, abs=1e-12)
    _, probabilities = classes(3)
    sure = probabilities.max(axis=1)
    perfect = (np.random.default_rng(0).random(ROWS) < sure).astype(int)
    told = np.where(perfect == 1, probabilities.argmax(1), (probabilities.argmax(1) + 1) % 4)
    assert value(CLASSES.metrics["calibration_error"], told, probabilities) < 0.08
    assert value(CLASSES.metrics["calibration_error"], (probabilities.argmax(1) + 1) % 4, probabilities) > 0.4


def test_calibration_error_of_labels_is_that_of_all_their_probabilities_together():
    labels, answers = labels_of_rows(3)
    metric, weights = LABELS.metrics["calibration_error"], np.random.default_rng(0).gamma(1.0, size=ROWS)
    one = BINARY.metrics["calibration_error"]
    for some in (None, weights):
        each = None if some is None else np.repeat(some, 4)
        assert value(metric, labels, answers, some) == pytest.approx(value(one, labels.ravel(), answers.ravel(), each))
    assert value(metric, labels, answers) < 0.05
    assert value(metric, 1 - labels, answers) > 0.3


def test_label_that_no_row_has_has_no_auc_and_is_left_out_of_the_mean():
    labels, answers = labels_of_rows(5)
    groups = np.arange(ROWS) % GROUPS
    with pytest.raises(EvaluationError, match="are the same"):
        estimate(LABELS.metrics["auc[never]"], labels, answers, groups)
    with pytest.raises(EvaluationError, match="no label is there in some rows"):
        estimate(LABELS.metrics["macro_auc"], labels * 0, answers, groups)
    # In one group only: without it the mean is one over the other labels.
    labels[groups == 3, 3] = 1
    _, left_out = without_each(LABELS.metrics["macro_auc"], labels, answers, group_codes(groups, ROWS), None)
    kept = groups != 3
    assert left_out[3] == pytest.approx(sklearn.roc_auc_score(labels[kept, :3], answers[kept, :3]), abs=1e-12)


def test_sums_without_a_group_keep_their_digits_where_one_group_has_nearly_all():
    by_group = np.array([[1e16], [1.0], [2.0], [3.0]])
    assert sums_without_each(by_group)[0, 0] == 6.0
    assert by_group.sum() - by_group[0, 0] != 6.0


@pytest.mark.parametrize(
    ("kind", "drawn", "name"),
    [
        (NUMBER, numbers, "rmse"),
        (NUMBER, numbers, "r2"),
        (CLASSES, classes, "macro_f1"),
        (BINARY, binary, "auc"),
        (LABELS, labels_of_rows, "macro_auc"),
        (LABELS, labels_of_rows, "hamming_loss"),
    ],
)
def test_gain_is_above_zero_for_the_better_model_whichever_way_the_metric_goes(kind: Kind, drawn, name):
    labels, good = drawn(2)
    # Answers of other rows.
    bad, groups = np.roll(good, 1, axis=0), np.arange(ROWS) % GROUPS
    found = gain(kind.metrics[name], labels, good, bad, groups)
    assert found.low > 0
    other = gain(kind.metrics[name], labels, bad, good, groups)
    assert (other.value, other.high) == (pytest.approx(-found.value), pytest.approx(-found.low))
    same = gain(kind.metrics[name], labels, good, good, groups)
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)


def test_class_that_is_in_one_group_only_has_no_interval():
    labels, answers = classes(4)
    labels[labels == 3] = 0
    labels[5] = 3
    groups = np.arange(ROWS) % GROUPS
    with pytest.raises(EvaluationError, match="undefined once a group is left out"):
        estimate(CLASSES.metrics["recall[rare]"], labels, answers, groups)


def test_each_row_may_be_a_group_in_every_metric():
    labels, answers = classes(6)
    for metric in CLASSES.metrics.values():
        if "rare" not in metric.name:
            found = estimate(metric, labels, answers, np.arange(ROWS))
            assert found.low <= found.value <= found.high
    labels, answers = labels_of_rows(6)
    for metric in LABELS.metrics.values():
        if "never" not in metric.name:
            found = estimate(metric, labels, answers, np.arange(ROWS))
            assert found.low <= found.value <= found.high


def test_interval_of_a_median_covers_where_rows_are_groups():
    """The true median absolute error of a standard normal error is 0.6745."""
    covered = 0
    for seed in range(200):
        errors = np.random.default_rng(seed).normal(size=400)
        found = estimate(NUMBER.metrics["median_absolute_error"], np.zeros(400), errors, np.arange(400))
        covered += found.low <= 0.67449 <= found.high
    assert covered >= 180
