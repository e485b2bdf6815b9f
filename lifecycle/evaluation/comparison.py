"""The candidate against a reference on the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lifecycle.records import Comparison, Estimate
from lifecycle.tasks.kind import Kind
from lifecycle.tasks.metric import gain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def paired_gain(
    kind: Kind, labels: Any, candidate: Any, reference: Any, groups: Any, metric: str, *, name: str, weights: Any = None
) -> Comparison:
    """By how much the candidate is better than the reference in a metric of the kind, with its interval by group.

    Labels `(N,)`, answers `(N, ...)` and groups have the same row order; `name` is the reference's. Raises
    EvaluationError on rows without an answer and on fewer than 8 groups.
    """
    labels, candidate = kind.checked(labels, candidate)
    _, reference = kind.checked(labels, reference)
    found = gain(kind.metrics[metric], labels, candidate, reference, groups, weights)
    return Comparison(reference=name, metric=metric, gain=found)


def row_weights(predictions: pd.DataFrame) -> np.ndarray | None:
    """What weighs the rows of a table of predictions, `(N,)`; None where they count alike."""
    return predictions["weight"].to_numpy(dtype="float64") if "weight" in predictions.columns else None


def standing(gain: Estimate) -> str:
    """How one stands to what the gain is over, by the interval: what holds 0 shows neither better nor as good."""
    return "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "not measurably better than"


def not_better_than_prior(baseline_gains: Iterable[Comparison]) -> dict[str, Estimate]:
    """Baselines that are not shown to be better than the prior: a gain over one of them shows nothing.

    `baseline_gains` are the baselines' own gains over the prior, each with the baseline as its reference.
    """
    return {item.reference: item.gain for item in baseline_gains if not item.gain.low > 0}
