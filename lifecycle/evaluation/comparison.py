"""The candidate against a reference on the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lifecycle.evaluation.interval import mean_estimate
from lifecycle.evaluation.metrics import row_loss
from lifecycle.records import Comparison, Estimate


def paired_gain(labels: Any, candidate: Any, reference: Any, groups: Any, metric: str, *, name: str) -> Comparison:
    """Mean of reference loss - candidate loss per row, above 0 is better, with its interval by group.

    All arrays have shape `(N,)` and the same row order; `metric` is log_loss (nats) or brier; `name`
    is the reference's. Raises EvaluationError on rows without a prediction and on fewer than 8 groups.
    """
    gain = row_loss(metric, labels, reference) - row_loss(metric, labels, candidate)
    return Comparison(reference=name, metric=metric, gain=mean_estimate(gain, groups))


def standing(gain: Estimate) -> str:
    """How one stands to what the gain is over, by the interval: what holds 0 shows neither better nor as good."""
    return "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "not measurably better than"


def not_better_than_prior(baseline_gains: Iterable[Comparison]) -> dict[str, Estimate]:
    """Baselines that are not shown to be better than the label prior: a gain over one of them shows nothing.

    `baseline_gains` are the baselines' own gains over the prior, each with the baseline as its reference.
    """
    return {item.reference: item.gain for item in baseline_gains if not item.gain.low > 0}
