"""Labels and answers that no figure can be computed from are refused: missing, not finite, of another length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError

if TYPE_CHECKING:
    import numpy as np


def vector(name: str, values: Any, *, dimensions: int = 1) -> np.ndarray:
    """Values as finite float64 of so many dimensions, N >= 1. Raises EvaluationError."""
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        fix = "drop the rows with missing values, or fill these in"
        raise EvaluationError(f"{name} are not all numbers: {error}", fix=fix) from error
    if array.ndim != dimensions or not len(array):
        shape = "(N,)" if dimensions == 1 else "(N, K)"
        raise EvaluationError(f"{name} must have shape {shape} with N >= 1", value=array.shape, fix="give one a row")
    wrong = ~np.isfinite(array)
    if wrong.any():
        raise EvaluationError(
            f"{int(wrong.sum())} of {array.size} {name} are not finite",
            value=str(array[wrong][0]),
            fix="find the rows from which they come; a missing value is never scored",
        )
    return array


def same_length(labels: np.ndarray, answers: np.ndarray) -> None:
    """Raises EvaluationError unless there is one answer for each label."""
    if len(labels) != len(answers):
        raise EvaluationError(
            "labels and answers differ in length",
            value=(len(labels), len(answers)),
            fix="give one answer for each label, in the same order",
        )
