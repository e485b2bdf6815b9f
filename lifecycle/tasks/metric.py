"""A metric of many rows: how its value follows from the rows, and its interval by group.

There are three ways, and each gives the value and what it would be without each group in turn:

- a mean over rows of a figure of each row, such as a loss;
- a function of K sums over rows, such as R² or F1;
- a way of its own, where the rows must be ranked, such as AUC.

Of a share of rows, such as an accuracy or a recall, few rows have intervals of their own (few_rows.py).

A gain is the difference of two models on the same rows, turned so that above 0 is better. Weights `(N,)` weigh rows;
without them each counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.protocol.figures import ROUNDING, Estimate
from trainworthy.lifecycle.tasks.few_rows import difference_of_few, share_interval
from trainworthy.lifecycle.tasks.interval import (
    group_codes,
    jackknife_estimate,
    mean_estimate,
    never_negative,
    without_spread,
)

if TYPE_CHECKING:
    import numpy as np

    # Labels (N,) and answers (N, ...) → a figure of each row, (N,).
    RowFigure = Callable[[np.ndarray, np.ndarray], np.ndarray]
    # Labels, answers, group codes (N,), weights or None → K sums of each group, (G, K).
    Sums = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
    # Sums (..., K) → the metric, (...); NaN where it is not defined.
    OfSums = Callable[[np.ndarray], np.ndarray]
    # Labels, answers, group codes (N,), weights or None → the value, and the value without each group, (G,).
    LeftOut = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None], tuple[float, np.ndarray]]


# Mean cost of a decision; only where costs are declared (evaluation/decision.py).
DECISION_COST = "decision_cost"


@dataclass(frozen=True)
class TaskMetric:
    """One metric of a kind of task. Exactly one of `rows`, `sums` with `of_sums`, and `left_out` is given.

    No interval leaves [low, high], the metric's range. One that does not rank models, such as a coverage, may be
    bounded by a guardrail and is no primary metric. One that `decides` is of decisions `(N,)`, 1 or 0 or places of
    classes, in the place of answers where such are declared. `events` makes it a share of rows: 1 or 0 of each row
    that counts, NaN of the others; it is their mean.
    """

    name: str
    higher_is_better: bool
    rows: RowFigure | None = None
    sums: Sums | None = None
    of_sums: OfSums | None = None
    left_out: LeftOut | None = None
    low: float = float("-inf")
    high: float = float("inf")
    ranks: bool = True
    decides: bool = False
    events: RowFigure | None = None


def estimate(metric: TaskMetric, labels: Any, answers: Any, groups: Any, weights: Any = None) -> Estimate:
    """The metric with its 95 % interval by group, of labels and answers that the kind has checked.

    Raises EvaluationError on fewer than 8 groups, missing groups, and where it is undefined once a group is left out.
    """
    codes = group_codes(groups, len(answers))
    if metric.rows is not None:
        interval = mean_estimate(metric.rows(labels, answers), codes, weights)
        interval = never_negative(interval) if metric.low >= 0 and metric.events is None else interval
    else:
        interval = jackknife_estimate(*without_each(metric, labels, answers, codes, weights))
    if metric.events is not None:
        return share_estimate(interval, metric.events(labels, answers), codes, weights)
    if not interval.has_width:
        interval = without_spread(
            interval, metric.high - metric.low, _telling_groups(metric, labels, answers, codes, weights)
        )
    return interval.model_copy(update={"low": max(interval.low, metric.low), "high": min(interval.high, metric.high)})


def _telling_groups(
    metric: TaskMetric, labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> int:
    """Of how many groups the metric has a value of its own: a recall has none of a group without an event."""
    import numpy as np

    if metric.rows is not None:
        return int(codes.max()) + 1
    if metric.sums is None or metric.of_sums is None:
        return 0
    return int(np.isfinite(metric.of_sums(metric.sums(labels, answers, codes, weights))).sum())


def gain(metric: TaskMetric, labels: Any, candidate: Any, reference: Any, groups: Any, weights: Any = None) -> Estimate:
    """By how much the candidate is better than the reference on the same rows, with its interval by group."""
    import numpy as np

    codes, sign = group_codes(groups, len(candidate)), 1.0 if metric.higher_is_better else -1.0
    if metric.rows is not None:
        better, worse = (metric.rows(labels, answers) for answers in (candidate, reference))
        interval = mean_estimate(sign * (better - worse), codes, weights)
        scale = float(np.average(np.abs(better) + np.abs(worse), weights=weights)) / 2
    else:
        (better, better_left), (worse, worse_left) = (
            without_each(metric, labels, answers, codes, weights) for answers in (candidate, reference)
        )
        interval = jackknife_estimate(sign * (better - worse), sign * (better_left - worse_left))
        scale = (abs(better) + abs(worse)) / 2
    interval = _without_rounding(interval, scale)
    if metric.events is not None:
        mine, theirs = (metric.events(labels, answers) for answers in (candidate, reference))
        if np.array_equal(np.isnan(mine), np.isnan(theirs)):
            return _paired_shares(interval, sign * (mine - theirs), codes, weights)
    if not (interval.has_width or np.array_equal(candidate, reference)):
        # Two models that catch the same few events differ in what the next ones would tell.
        telling_groups = min(
            _telling_groups(metric, labels, answers, codes, weights) for answers in (candidate, reference)
        )
        interval = without_spread(interval, metric.high - metric.low, telling_groups)
    return interval


def _without_rounding(interval: Estimate, scale: float) -> Estimate:
    """The gain with width 0 where its width is what rounding leaves of none; `scale` is the size of both figures.

    A gain is near 0, so its own size is no measure: equal losses that were rounded otherwise gave one of -5e-20 with an
    interval that had a width, and in 14 of 200 draws one that lay beside 0.
    """
    if interval.high - interval.low > ROUNDING * scale:
        return interval
    value = interval.value if abs(interval.value) > ROUNDING * scale else 0.0
    return interval.model_copy(update={"value": value, "low": value, "high": value, "standard_error": 0.0})


def share_estimate(interval: Estimate, events: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> Estimate:
    """The estimate of a share with the interval that its rows allow; `events` `(N,)` as TaskMetric has them."""
    import numpy as np

    counted = ~np.isnan(events)
    own = None if weights is None else weights[counted]
    hits, sizes = group_sums([events[counted], None], codes[counted], own).T
    return share_interval(interval, hits, sizes, int(counted.sum()))


def _paired_shares(
    interval: Estimate, differences: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> Estimate:  # fmt: skip
    """As share_estimate, of two models: `differences` `(N,)` are 1, 0 or -1, NaN where a row does not count."""
    import numpy as np

    counted = ~np.isnan(differences)
    own, moved = None if weights is None else weights[counted], differences[counted]
    better, worse, sizes = group_sums([moved > 0, moved < 0, None], codes[counted], own).T
    return difference_of_few(interval, better, worse, sizes, int(counted.sum()))


def value(metric: TaskMetric, labels: Any, answers: Any, weights: Any = None) -> float:
    """The metric over all rows, without an interval; NaN where it is not defined."""
    import numpy as np

    if metric.rows is not None:
        return float(np.average(metric.rows(labels, answers), weights=weights))
    return without_each(metric, labels, answers, np.zeros(len(answers), dtype=np.int64), weights)[0]


def without_each(
    metric: TaskMetric, labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """The value, and the value without each group, shape (G,), of a metric that is no mean of rows."""
    if metric.left_out is not None:
        return metric.left_out(labels, answers, codes, weights)
    assert metric.sums is not None
    assert metric.of_sums is not None
    by_group = metric.sums(labels, answers, codes, weights)
    return float(metric.of_sums(by_group.sum(axis=0))), metric.of_sums(sums_without_each(by_group))


def group_sums(columns: Sequence[np.ndarray | None], codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Sums of K columns `(N,)` over each group, shape (G, K); None stands for ones."""
    import numpy as np

    weighed = (weights if column is None else column if weights is None else column * weights for column in columns)
    return np.stack([np.bincount(codes, weights=column) for column in weighed], axis=1)


def cell_sums(cells: np.ndarray, count: int, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Rows of each group in each of `count` cells, shape (G, count); `cells` `(N,)` has each row's."""
    import numpy as np

    groups = int(codes.max()) + 1
    return np.bincount(codes * count + cells, weights=weights, minlength=groups * count).reshape(groups, count)


def sums_without_each(by_group: np.ndarray) -> np.ndarray:
    """Sums over all groups but one, for each, shape (G, K).

    From sums of the groups before and behind: total minus group loses digits where one group has nearly all (9e-4 of
    an R² was seen).
    """
    import numpy as np

    nothing = np.zeros((1, by_group.shape[1]))
    before = np.concatenate([nothing, np.cumsum(by_group, axis=0)[:-1]])
    behind = np.concatenate([np.cumsum(by_group[::-1], axis=0)[:-1][::-1], nothing])
    return before + behind


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator; NaN where that is not defined."""
    import numpy as np

    numerator, denominator = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    return np.divide(numerator, denominator, out=np.full(denominator.shape, np.nan), where=denominator > 0)


def among(counted: np.ndarray, so: np.ndarray) -> np.ndarray:
    """1 or 0 by whether it is so, of the rows that count; NaN of the others, all `(N,)`."""
    import numpy as np

    return np.where(counted, so.astype(np.float64), np.nan)


def mean_of_known(figures: np.ndarray) -> np.ndarray:
    """Mean over the classes or labels that have a figure, (..., classes) → (...); NaN where none has."""
    import numpy as np

    known = np.isfinite(figures)
    return ratio(np.where(known, figures, 0.0).sum(axis=-1), known.sum(axis=-1))
