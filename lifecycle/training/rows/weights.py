"""Weights of training rows: declared by class, and given row by row by a column of the contract's role `weight`.

A row's weight is w = c(label) · r. r is the weight column's value, 1 without one. c is 1 for both classes with
`none`; 1 and p with `{positive: p}`; and with `balanced` such that both classes count the same: c(y) = Σr / (2 · Σr of
y's rows). All are divided by their mean over the stage's training rows, so that it is 1, and learning rate and
clip_norm mean what they meant. An update's loss is the mean of w · loss over its batch.

Weights belong to the training alone: the progressive loss, validation, calibration and evaluation count each row once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lifecycle.errors import DatasetError
from lifecycle.training.rows.oversampling import Oversampled
from lifecycle.training_spec import ClassWeights

if TYPE_CHECKING:
    import numpy as np


def row_weights(
    labels: np.ndarray,
    declared: str | ClassWeights | None,
    given: np.ndarray | None = None,
    oversampled: Oversampled | None = None,
) -> np.ndarray | None:
    """Weights for training rows with these labels, shape (N,), of mean 1 over an epoch's draws; None where all are 1.

    `given` are the weight column's values. Raises DatasetError if one is negative or not finite, or all of a class
    are 0.
    """
    import numpy as np

    if given is None and declared in (None, "none"):
        return None
    weights = np.ones(len(labels)) if given is None else np.asarray(given, dtype=np.float64)
    sums = np.bincount(np.asarray(labels, dtype=np.int64), weights=weights, minlength=2)
    if not np.isfinite(weights).all() or weights.min() < 0 or not (sums > 0).all():
        fix = "give every training row a finite weight of at least 0, and each class some above 0"
        raise DatasetError("the weights of the training rows can't be used", value=f"sums by class {sums}", fix=fix)
    if isinstance(declared, ClassWeights):
        weights = np.where(labels == 1, declared.positive, 1.0) * weights
    elif declared == "balanced":
        weights = (sums.sum() / (2 * sums))[np.asarray(labels, dtype=np.int64)] * weights
    if oversampled is None:
        return weights / weights.mean()
    return weights / np.average(weights, weights=oversampled.draws_of(len(labels)))


def log_odds_shift(labels: np.ndarray, weights: np.ndarray | None) -> float:
    """By how much the weights raise the log-odds that a network learns: log of the classes' mean weights' ratio.

    Taken out of the predictions on validation rows, which are judged before calibration.
    """
    if weights is None:
        return 0.0
    return math.log(weights[labels == 1].mean() / weights[labels == 0].mean())
