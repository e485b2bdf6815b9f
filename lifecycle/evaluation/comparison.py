"""The candidate against a reference on the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lifecycle.evaluation.interval import mean_estimate
from lifecycle.evaluation.metrics import row_loss
from lifecycle.records import Comparison


def paired_gain(labels: Any, candidate: Any, reference: Any, groups: Any, metric: str, *, name: str) -> Comparison:
    """Mean of reference loss - candidate loss per row, above 0 is better, with its interval by group.

    All arrays have shape `(N,)` and the same row order; `metric` is log_loss (nats) or brier; `name`
    is the reference's. Raises EvaluationError on rows without a prediction and on fewer than 8 groups.
    """
    gain = row_loss(metric, labels, reference) - row_loss(metric, labels, candidate)
    return Comparison(reference=name, metric=metric, gain=mean_estimate(gain, groups))


def no_better_than_prior(baseline_gains: Iterable[Comparison]) -> frozenset[str]:
    """Baselines that are not shown to be better than the label prior: a gain over one of them shows nothing.

    `baseline_gains` are the baselines' own gains over the prior, each with the baseline as its reference.
    """
    return frozenset(item.reference for item in baseline_gains if not item.gain.low > 0)
