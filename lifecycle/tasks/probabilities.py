"""Losses of each row and metrics of many rows, for binary classification.

Labels are 0 or 1, probabilities are those of label 1. Every function refuses input from which no
figure can be computed (EvaluationError): a NaN never becomes a number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import ReliabilityBin
from trainworthy.lifecycle.tasks.input_checks import vector
from trainworthy.lifecycle.tasks.metric import ratio

if TYPE_CHECKING:
    import numpy as np

# Bins of the calibration error and of the reliability table.
BINS = 10
# float32 cannot hold a probability nearer to 1 than 6e-8, so a saturated model is not infinitely wrong
# but pays log(1e7) = 16.1 for a row that it was sure of and got wrong.
SMALLEST_PROBABILITY = 1e-7


def log_loss(labels: Any, probabilities: Any) -> np.ndarray:
    """Negative log-likelihood in nats of each row, shape `(N,)`; probabilities are clipped to [1e-7, 1 - 1e-7]."""
    import numpy as np

    labels, probabilities = checked(labels, probabilities)
    clipped = np.clip(probabilities, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return -np.where(labels == 1, np.log(clipped), np.log1p(-clipped))


def brier(labels: Any, probabilities: Any) -> np.ndarray:
    """Squared error of the probability of each row, shape `(N,)`, in [0, 1]."""
    labels, probabilities = checked(labels, probabilities)
    return (probabilities - labels) ** 2


def auc(labels: Any, probabilities: Any) -> float:
    """Area under the ROC curve in [0, 1]: the share of (positive, negative) pairs in order, ties count half."""
    return ranking(*checked(labels, probabilities))


def auc_error(auc: float, positives: int, negatives: int) -> float:
    """Standard error of an AUC (Hanley and McNeil 1982), as if rows were independent; infinite without rows of both."""
    if not positives or not negatives:
        return math.inf
    first, second = auc / (2 - auc), 2 * auc * auc / (1 + auc)
    spread = auc * (1 - auc) + (positives - 1) * (first - auc * auc) + (negatives - 1) * (second - auc * auc)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))


def ranking(labels: np.ndarray, scores: np.ndarray) -> float:
    """The AUC of any scores `(N,)`, for labels `(N,)` of 0 and 1."""
    require_both_classes(labels)
    positive, negative = scores[labels == 1], scores[labels == 0]
    return float(pair_wins(positive, negative).sum() / (len(positive) * len(negative)))


def pair_wins(scores: np.ndarray, other_scores: np.ndarray) -> np.ndarray:
    """For each score how many of the others lie below it, ties count half; shape of `scores`."""
    import numpy as np

    ordered = np.sort(other_scores)
    return (np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")) / 2


def calibration_error(labels: Any, probabilities: Any, bins: int = BINS) -> float:
    """Expected calibration error in [0, 1] over `bins` bins of equal mass.

    The mean over rows of |mean predicted - observed share| of the row's bin. Biased upwards: a perfect
    model shows about sqrt(0.64 p (1 - p) bins / N), so compare it between models only on equal rows.
    Source: Naeini et al. 2015; equal mass after Nixon et al. 2019.
    """
    import numpy as np

    labels, probabilities = checked(labels, probabilities)
    excess = np.bincount(equal_mass_bins(probabilities, bins), weights=probabilities - labels)
    return float(np.abs(excess).sum() / len(labels))


def equal_mass_bins(probabilities: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The bin of each row, shape `(N,)`; equal probabilities always share a bin, so there may be fewer bins."""
    import numpy as np

    shares = np.arange(1, bins) / bins
    edges = np.unique(np.quantile(probabilities, shares, method="inverted_cdf"))
    return np.searchsorted(edges, probabilities, side="left")


def reliability(
    labels: Any, probabilities: Any, weights: np.ndarray | None = None, bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """Mean predicted probability against observed share of positives, by rising probability."""
    return answers_by_bin(*checked(labels, probabilities), weights, bins)


def answers_by_bin(
    labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None, bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """Weighed means of answers and labels, each `(N,)`, in bins of equal rows by the answer."""
    import numpy as np

    codes = equal_mass_bins(answers, bins)
    rows, sums = np.bincount(codes), np.bincount(codes, weights=weights)
    predicted, observed = (
        np.bincount(codes, weights=values if weights is None else values * weights) for values in (answers, labels)
    )
    return tuple(
        ReliabilityBin(predicted=float(predicted[i] / sums[i]), observed=float(observed[i] / sums[i]), rows=int(n))
        for i, n in enumerate(rows)
        if n
    )


def checked(labels: Any, probabilities: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 `(N,)`, N >= 1. Raises EvaluationError where a value is missing or out of range."""
    labels, probabilities = checked_labels(labels), vector("probabilities", probabilities)
    if len(labels) != len(probabilities):
        raise EvaluationError(
            "labels and probabilities differ in length",
            value=(len(labels), len(probabilities)),
            fix="give one probability for each label, in the same order",
        )
    wrong = (probabilities < 0) | (probabilities > 1)
    if wrong.any():
        raise EvaluationError(
            f"{int(wrong.sum())} of {len(wrong)} probabilities lie outside [0, 1]",
            value=float(probabilities[wrong][0]),
            fix="let predict() give probabilities, for example the sigmoid of the model's outputs",
        )
    return labels, probabilities


def checked_labels(labels: Any) -> np.ndarray:
    """Labels as float64 `(N,)`, each 0 or 1."""
    labels = vector("labels", labels)
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        raise EvaluationError(
            f"{int(wrong.sum())} of {len(wrong)} labels are neither 0 nor 1",
            value=float(labels[wrong][0]),
            fix="define the label as 0 or 1 in the contract",
        )
    return labels


def require_both_classes(labels: np.ndarray) -> None:
    """Raises EvaluationError unless there are positive and negative rows."""
    if labels.min() == labels.max():
        raise EvaluationError(
            f"all {len(labels)} labels are the same", value=float(labels[0]), fix="take rows that hold both labels"
        )


def logarithms(probabilities: np.ndarray) -> np.ndarray:
    """Of probabilities that are clipped to [1e-7, 1], in their type."""
    import numpy as np

    return np.log(np.clip(probabilities, SMALLEST_PROBABILITY, 1.0))


def calibration_error_left_out(
    expected: np.ndarray, observed: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Mean distance of expected and observed over bins of equal mass, and it without each group; all `(N,)`.

    The bins of all rows are kept. Source: Guo et al. 2017; equal mass after Nixon et al. 2019.
    """
    import numpy as np

    bins = equal_mass_bins(expected)
    shape = (int(codes.max()) + 1, int(bins.max()) + 1)
    off = expected - observed if weights is None else (expected - observed) * weights
    rows = np.bincount(codes, weights=weights)
    cells = np.bincount(codes * shape[1] + bins, weights=off, minlength=shape[0] * shape[1])
    excess = cells.reshape(shape)
    left_out = ratio(np.abs(excess.sum(axis=0) - excess).sum(axis=1), rows.sum() - rows)
    return float(np.abs(excess.sum(axis=0)).sum() / rows.sum()), left_out
