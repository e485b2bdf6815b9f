"""Platt scaling: two numbers, fitted on the calibration split, that correct a model's probabilities.

Source: Platt 1999, with the Newton method and smoothed targets of Lin, Lin & Weng 2007. The smoothed
targets keep the slope finite where the labels are perfectly separated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks.probabilities import SMALLEST_PROBABILITY, checked, require_both_classes

_ITERATIONS = 100
# Mean gradient at which the log-loss is within about 1e-12 of its minimum.
_TOLERANCE = 1e-8


def fit_platt(labels: Any, probabilities: Any) -> dict[str, float]:
    """`{"slope", "intercept"}` of logit(calibrated) = slope × logit(probability) + intercept.

    A negative slope is kept: the probabilities rank the calibration rows backwards, and hiding that
    would make a broken model look only dull. A constant probability tells nothing about the slope,
    which is then 1, and only the level is corrected. Raises EvaluationError if one label is missing.
    """
    labels, probabilities = checked(labels, probabilities)
    require_both_classes(labels)
    positives = float(labels.sum())
    negatives = len(labels) - positives
    targets = np.where(labels == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    logits = _logit(probabilities)
    if np.ptp(logits) < 1e-9:
        level = float(targets.mean())
        return {"slope": 1.0, "intercept": math.log(level / (1 - level)) - float(logits.mean())}
    # Standardised logits keep the Newton system well conditioned: raw ones reach from -16 to 16.
    center, spread = float(logits.mean()), float(logits.std())
    slope, intercept = _newton((logits - center) / spread, targets)
    return {"slope": slope / spread, "intercept": intercept - slope * center / spread}


def apply_platt(probabilities: Any, state: Mapping[str, float]) -> np.ndarray:
    """Calibrated probabilities, shape `(N,)`; `state` is what fit_platt gave."""
    keys = {"slope", "intercept"}
    if set(state) != keys or not all(math.isfinite(state[key]) for key in keys):
        raise EvaluationError(
            "the calibration must hold a finite slope and intercept", value=dict(state), fix="fit it with fit_platt"
        )
    probabilities = np.asarray(probabilities, dtype=np.float64)
    _, probabilities = checked(np.zeros(len(probabilities)), probabilities)
    return expit(state["slope"] * _logit(probabilities) + state["intercept"])


def _logit(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return np.log(clipped) - np.log1p(-clipped)


def _newton(logits: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """The minimum of the cross-entropy over slope and intercept, by Newton steps that never go uphill."""
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    # Slope 0 is where the curvature is greatest; a saturated start has none.
    level = float(targets.mean())
    weights = np.array([0.0, math.log(level / (1 - level))])
    for _ in range(_ITERATIONS):
        predicted = expit(design @ weights)
        gradient = design.T @ (predicted - targets) / len(targets)
        if np.abs(gradient).max() < _TOLERANCE:
            return float(weights[0]), float(weights[1])
        curvature = (design * (predicted * (1 - predicted))[:, None]).T @ design / len(targets)
        step = np.linalg.solve(curvature, gradient)
        scale = _downhill(design, targets, weights, step, gradient)
        if scale == 0.0:
            break
        weights = weights - scale * step
    raise EvaluationError(
        "Platt scaling found no minimum", value=weights.tolist(), fix="look at the spread of the model's outputs"
    )


def _downhill(
    design: np.ndarray, targets: np.ndarray, weights: np.ndarray, step: np.ndarray, gradient: np.ndarray
) -> float:
    """The first of 1, 1/2, 1/4 … that lowers the loss enough (Armijo); 0 if none does."""
    now, slope = _cross_entropy(design @ weights, targets), float(gradient @ step)
    for halvings in range(40):
        scale = 0.5**halvings
        # The last term forgives rounding next to the minimum.
        if _cross_entropy(design @ (weights - scale * step), targets) <= now - 1e-4 * scale * slope + 1e-14:
            return scale
    return 0.0


def _cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    return float((np.logaddexp(0.0, logits) - targets * logits).mean())
