"""Weights of training rows: declared by class, and given row by row by a column of the contract's role `weight`.

A row's weight is w = c(label) · r. r is the weight column's value, 1 without one. c is 1 for all classes with `none`; 1
and p with `{positive: p}`; and with `balanced` such that all C classes count the same: c(y) = Σr / (C · Σr of y's
rows). Labels that are numbers have no classes, and c is 1. All are divided by their mean over the stage's training
rows, so that it is 1, and learning rate and clip_norm mean what they meant. An update's loss is the mean of w · loss
over its batch.

Weights belong to the training alone: the progressive loss, validation, calibration and evaluation count each row once.
"""

from __future__ import annotations

import math

import numpy as np

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.oversampling import Oversampled
from trainworthy.lifecycle.spec.training import ClassWeights


def row_weights(
    labels: np.ndarray,
    declared: str | ClassWeights | None,
    given: np.ndarray | None = None,
    oversampled: Oversampled | None = None,
    classes: int = 2,
) -> np.ndarray | None:
    """Weights for training rows with these labels, shape (N,), of mean 1 over an epoch's draws; None where all are 1.

    `given` are the weight column's values, `classes` how many the label has, 0 for numbers. Raises DatasetError if a
    weight is negative or not finite, or all of a class that occurs are 0.
    """
    if given is None and declared in (None, "none"):
        return None
    weights = np.ones(len(labels)) if given is None else np.asarray(given, dtype=np.float64)
    codes = np.asarray(labels, dtype=np.int64) if classes else np.zeros(len(labels), dtype=np.int64)
    sums = np.bincount(codes, weights=weights, minlength=classes)
    # A class that only other rows hold has no weight to give, but there must be two that have.
    occurring = np.bincount(codes, minlength=classes) > 0
    without = not (sums[occurring] > 0).all() or (sums > 0).sum() < min(2, classes)
    if not np.isfinite(weights).all() or weights.min() < 0 or without:
        fix = "give every training row a finite weight of at least 0, and each class some above 0"
        raise DatasetError("the weights of the training rows can't be used", value=f"sums by class {sums}", fix=fix)
    if isinstance(declared, ClassWeights):
        weights = np.where(labels == 1, declared.positive, 1.0) * weights
    elif declared == "balanced":
        weights = (sums.sum() / (occurring.sum() * np.where(occurring, sums, 1.0)))[codes] * weights
    if oversampled is None:
        return weights / weights.mean()
    return weights / np.average(weights, weights=oversampled.draws_of(len(labels)))


def raised_by_class(
    labels: np.ndarray, weights: np.ndarray | None, oversampled: Oversampled | None, classes: int
) -> np.ndarray | None:
    """By how much weights and draws raise the logarithm of each class's probability that a network learns, (classes,).

    The logarithm of the class's mean weight, and of how often its rows are drawn. Taken out of the answers on
    validation rows, which are judged before calibration. None where nothing is raised, and for numbers.
    """
    if not classes or (weights is None and oversampled is None):
        return None
    codes = np.asarray(labels, dtype=np.int64)
    rows = np.bincount(codes, minlength=classes)
    sums = np.bincount(codes, weights=weights, minlength=classes)
    raised = np.log(np.divide(sums, rows, out=np.ones(classes), where=rows > 0))
    if oversampled is not None:
        raised[int(labels[int(oversampled.rare[0])])] += math.log(oversampled.times)
    return raised
