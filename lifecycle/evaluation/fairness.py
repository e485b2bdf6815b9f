"""How a model's decisions differ between the values of a protected column.

The selection rate by value is what demographic parity asks, true and false positive rates what equalized odds ask; of
numbers it is the mean error, of every kind the mean loss. Each has its interval by group, as have the difference of the
two values that lie farthest apart, and their ratio: chance alone parts the extremes of many values. A limit has to
hold for every pair, and the widest interval need not be that of the extremes. A rate of too few rows or groups is told
and is in no difference. Values are those of slices: numbers by their quartiles, missing ones apart, those of a
sensitive column by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import comb, inf, isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.evaluation.decision import decisions_of
from trainworthy.lifecycle.evaluation.slices import MOST_NAMED, slice_codes, slice_column
from trainworthy.lifecycle.protocol.figures import Disparity, Estimate, PairDifference, RateOfValue
from trainworthy.lifecycle.spec.benchmark import FairnessSpec
from trainworthy.lifecycle.tasks.few_rows import share_interval
from trainworthy.lifecycle.tasks.interval import jackknife_estimate, mean_estimate, without_spread
from trainworthy.lifecycle.tasks.kind import MOST_CLAIMS, Claim, JudgedLosses, Kind
from trainworthy.lifecycle.tasks.metric import ratio, sums_without_each
from trainworthy.lifecycle.tasks.statistic_columns import from_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Rate = Literal["selection_rate", "true_positive_rate", "false_positive_rate", "mean_error", "mean_loss"]
# Of these a ratio means something: they lie in [0, 1].
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
# Sums of squares that cancel keep about 1e-16 of themselves for each of at most some ten thousand groups.
_ROUNDING = 1e-12


class _Measured(NamedTuple):
    """What a rate is the mean of, `(N,)`, and over which rows, `(N,)` of booleans; None is all.

    `sizes` are those of JudgedLosses: a long text counts more than a short one.
    """

    rate: Rate
    claim: str
    figures: np.ndarray
    rows: np.ndarray | None
    sizes: np.ndarray | None = None


def fairness(predictions: pd.DataFrame, spec: FairnessSpec, model: str, kind: Kind) -> tuple[Disparity, ...]:
    """Every rate of `model` by every protected column, of the first claims.

    Of the others only rates that have a limit are measured, and those kept that decide on it. `predictions` has label,
    group, the model's statistics, slice_column of each column, and decision_column of the model where decisions are
    declared.
    """
    labels, answers = kind.checked_statistics(predictions["label"], from_columns(kind, model, predictions))
    decided = decisions_of(model, predictions)
    claims = kind.claims(labels, answers)
    measured = (*_of_claims(claims[:MOST_CLAIMS], decided), *_of_rows(kind, labels, answers))
    groups, weights = _codes(predictions["group"]), row_weights(predictions)
    disparities = []
    for column in spec.columns:
        disparity = partial(
            _disparity,
            model_and_column=(model, column),
            values=slice_codes(predictions[slice_column(column)].rename(column)),
            groups=groups,
            of_rows=weights,
            minimum_rows=spec.minimum_rows,
        )
        disparities += map(disparity, measured)
        for rate in spec.at_most_difference:
            remaining = _of_claims(claims[MOST_CLAIMS:], decided)
            disparities += _deciding([disparity(measure) for measure in remaining if measure.rate == rate])
    return tuple(disparities)


def _deciding(disparities: Sequence[Disparity]) -> tuple[Disparity, ...]:
    """Of the same rate of many claims those that decide on a limit: the first that lacks a figure, the farthest."""

    def reach(disparity: Disparity) -> float:
        return -inf if disparity.widest is None else disparity.widest.difference.high

    def sure(disparity: Disparity) -> float:
        values = sum(value.rate is not None for value in disparity.values)
        return -inf if disparity.surest is None else sure_of(disparity.surest.difference, values)

    chosen = [next((disparity for disparity in disparities if not _whole(disparity)), None)]
    chosen += [max(disparities, key=far, default=None) for far in (reach, sure)]
    return tuple(disparity for disparity in disparities if any(disparity is other for other in chosen))


def _whole(disparity: Disparity) -> bool:
    """Whether every pair of values has a difference."""
    known = all(value.rate is not None for value in disparity.values)
    return known and not disparity.other_values and disparity.widest is not None


def equalized_odds(disparities: Sequence[Disparity]) -> tuple[Disparity, ...]:
    """Of the true and false positive rates of each model, column and claim, the one with the greater difference."""
    by_claim: dict[tuple[str, str, str], Disparity] = {}
    for disparity in disparities:
        if disparity.rate not in ("true_positive_rate", "false_positive_rate") or disparity.difference is None:
            continue
        key = (disparity.model, disparity.column, disparity.claim)
        other = by_claim.get(key)
        if other is None or other.difference is None or other.difference.value < disparity.difference.value:
            by_claim[key] = disparity
    return tuple(by_claim.values())


def _of_claims(claims: Iterable[Claim], declared: np.ndarray | None) -> Iterator[_Measured]:
    """Rates of decisions; `declared` are the model's as decision_column has them, in the place of the kind's own."""
    for claim in claims:
        if claim.decided is not None:
            decided = (claim.decided if declared is None else declared == claim.decision).astype("float64")
            yield _Measured("selection_rate", claim.name, decided, None)
            yield _Measured("true_positive_rate", claim.name, decided, claim.so)
            yield _Measured("false_positive_rate", claim.name, decided, ~claim.so)


def _of_rows(kind: Kind, labels: np.ndarray, answers: np.ndarray) -> Iterator[_Measured]:
    errors = kind.errors(labels, answers)
    if errors is not None:
        yield _Measured("mean_error", "", errors, None)
    judged = kind.judged_losses(labels, answers)
    yield _Measured("mean_loss", "", judged.losses, None, judged.sizes)


def _codes(groups: pd.Series) -> np.ndarray:
    import pandas as pd

    return pd.factorize(groups)[0]


class _Sums(NamedTuple):
    """Of each group and value, (G, V): rows, their weights, and the sum of what the rate is the mean of."""

    rows: np.ndarray
    weights: np.ndarray
    figures: np.ndarray


def _disparity(
    measured: _Measured,
    model_and_column: tuple[str, str],
    values: tuple[np.ndarray, list[str]],
    groups: np.ndarray,
    of_rows: np.ndarray | None,
    minimum_rows: int,
) -> Disparity:
    """One rate by the values of one column."""
    import numpy as np

    (codes, names), (model, column) = values, model_and_column
    weights = JudgedLosses(measured.figures, measured.sizes).weights(of_rows)
    inside = np.ones(len(codes), dtype=bool) if measured.rows is None else measured.rows
    sizes = np.bincount(codes[inside], minlength=len(names))
    # The greatest values first; of a column of thousands of values the rest would fill the record.
    order = np.argsort(-sizes, kind="stable")[:MOST_NAMED]
    places = np.full(len(names), -1)
    places[order] = np.arange(len(order))
    sums = _sums(measured.figures, np.where(inside, places[codes], -1), len(order), groups, weights)
    named = [names[code] for code in order]
    rates = [_of_value(measured.rate, name, sums, at, minimum_rows) for at, name in enumerate(named)]
    body = Disparity(
        model=model, column=column, claim=measured.claim, rate=measured.rate, values=tuple(rates),
        other_values=len(names) - len(order), other_rows=int(sizes.sum() - sizes[order].sum()),
    )  # fmt: skip
    known = {at: rate.rate.value for at, rate in enumerate(rates) if rate.rate is not None}
    if len(known) < 2:
        one_value = f"{column} has one value" if len(names) < 2 else f"{len(known)} values of {column} can be measured"
        return body.model_copy(update={"reason": f"{one_value}: a difference needs two"})
    falling = sorted(known, key=lambda at: -known[at])
    difference, ratio_of, reason = _difference_and_ratio(sums, falling[0], falling[-1], bounded=measured.rate in _RATES)
    widest, surest = _of_pairs(sums, falling, named, bounded=measured.rate in _RATES)
    return body.model_copy(
        update={
            "highest": named[falling[0]],
            "lowest": named[falling[-1]],
            "difference": difference,
            "ratio": ratio_of if measured.rate in _RATES else None,
            "widest": widest,
            "surest": surest,
            "reason": reason,
        }
    )


def _sums(
    figures: np.ndarray, places: np.ndarray, values: int, groups: np.ndarray, weights: np.ndarray | None
) -> _Sums:  # fmt: skip
    """By the value that each row has, `places` `(N,)`; below 0 the row counts for none."""
    import numpy as np

    counted = places >= 0
    shape = (int(groups.max()) + 1, values)
    cells, own = groups[counted] * values + places[counted], None if weights is None else weights[counted]
    of_rows = figures[counted] if own is None else figures[counted] * own
    rows, weighed, summed = (
        np.bincount(cells, weights=cell_weights, minlength=shape[0] * values).reshape(shape)
        for cell_weights in (None, own, of_rows)
    )
    return _Sums(rows, weighed.astype(np.float64), summed)


def _of_value(rate_name: Rate, name: str, sums: _Sums, at: int, minimum_rows: int) -> RateOfValue:
    """The rate of one value's rows, or why there is none."""
    import numpy as np

    own = sums.rows[:, at] > 0
    size = int(sums.rows[:, at].sum())
    rate_of_value = RateOfValue(value=name, rows=size, groups=int(np.count_nonzero(own)))
    if size < minimum_rows:
        return rate_of_value.model_copy(update={"reason": f"{size} rows, fewer than {minimum_rows}"})
    weights = sums.weights[own, at]
    try:
        rate = mean_estimate(sums.figures[own, at] / weights, np.arange(len(weights)), weights)
    except EvaluationError as error:
        return rate_of_value.model_copy(update={"reason": error.problem})
    if rate_name in _RATES:
        rate = share_interval(rate, sums.figures[own, at], weights, size)
    return rate_of_value.model_copy(update={"rate": rate})


def _difference_and_ratio(
    sums: _Sums, high: int, low: int, *, bounded: bool
) -> tuple[Estimate | None, Estimate | None, str]:
    """Difference and ratio of the means of two values by the delete-one-group jackknife, and why one is missing.

    Of shares of rows a difference lies within [-1, 1], and a ratio is not below 0.
    """
    means, left_out, there = _means(sums, (high, low))
    left_out = left_out[there.any(axis=1)]
    reasons, estimates = [], []
    for name, value, without in (
        ("difference", means[0] - means[1], left_out[:, 0] - left_out[:, 1]),
        ("ratio", ratio(means[1], means[0]), ratio(left_out[:, 1], left_out[:, 0])),
    ):
        estimate, reason = _with_width(float(value), without)
        if estimate is not None and bounded:
            estimate = _within(estimate, *((-1.0, 1.0) if name == "difference" else (0.0, inf)))
        estimates.append(estimate)
        reasons += [f"{name}: {reason}"] if reason else []
    return estimates[0], estimates[1], "; ".join(reasons)


def _within(estimate: Estimate, low: float, high: float) -> Estimate:
    """The estimate with no end of its interval beyond what there can be."""
    return estimate.model_copy(update={"low": max(low, estimate.low), "high": min(high, estimate.high)})


def _means(sums: _Sums, values: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means of values, (V,), these without each group, (G, V), and whether the group has the value, (G, V)."""
    columns = list(values)
    there, figures, weights = sums.rows[:, columns] > 0, sums.figures[:, columns], sums.weights[:, columns]
    whole = ratio(figures.sum(axis=0), weights.sum(axis=0))
    return whole, ratio(sums_without_each(figures), sums_without_each(weights)), there


def _of_pairs(
    sums: _Sums, falling: Sequence[int], names: Sequence[str], *, bounded: bool
) -> tuple[PairDifference | None, PairDifference | None]:
    """Of all pairs of values, by `falling` rate, the widest and the surest one (protocol/figures.py: Disparity)."""
    pairs = [
        PairDifference(highest=names[falling[high]], lowest=names[falling[low]], difference=difference)
        for high, low, difference in _pair_differences(*_means(sums, falling), span=1.0 if bounded else inf)
    ]
    all_known = all(isfinite(pair.difference.high) for pair in pairs)
    spread = [pair for pair in pairs if pair.difference.standard_error > 0]
    surest = max(spread, key=lambda pair: sure_of(pair.difference, len(falling)), default=None)
    return max(pairs, key=lambda pair: pair.difference.high) if all_known else None, surest


def _pair_differences(
    means: np.ndarray, left_out: np.ndarray, there: np.ndarray, span: float
) -> Iterator[tuple[int, int, Estimate]]:
    """Each pair of values with its difference by the delete-one-group jackknife over the groups of the two.

    A group moves nothing but the values that it has, so all pairs' variances follow from products of two values' moves.
    """
    import numpy as np
    from scipy.special import stdtrit

    moved = np.where(there, left_out - means, 0.0)
    products, sums, shared = moved.T @ moved, moved.sum(axis=0), there.T.astype(np.int64) @ there
    high, low = np.triu_indices(len(means), k=1)
    groups = shared[high, high] + shared[low, low] - shared[high, low]
    scale = products[high, high] + products[low, low]
    squares = scale - 2 * products[high, low] - (sums[high] - sums[low]) ** 2 / groups
    # What is left of numbers that cancel is rounding: values that move alike do not part.
    squares = np.where(squares < _ROUNDING * scale, 0.0, squares)
    errors = np.sqrt((groups - 1) / groups * squares)
    reaches = stdtrit(groups - 1, 0.975) * errors
    for at in range(len(high)):
        value, reach = float(means[high[at]] - means[low[at]]), float(reaches[at])
        difference = Estimate(
            value=value, low=value - reach, high=value + reach, standard_error=float(errors[at]), groups=int(groups[at])
        )
        if not difference.has_width:
            # Rates that are the same whichever group is left out, as of a class that is never predicted.
            difference = without_spread(difference, span, difference.groups)
        yield int(high[at]), int(low[at]), _within(difference, -span, span)


def sure_of(difference: Estimate, values: int) -> float:
    """How much of the difference of two among so many values is sure, reckoning with the choice among all pairs."""
    from scipy.special import stdtrit

    reach = float(stdtrit(difference.groups - 1, 1 - 0.025 / max(1, comb(values, 2))))
    return difference.value - reach * difference.standard_error


def _with_width(value: float, left_out: np.ndarray) -> tuple[Estimate | None, str]:
    """The estimate, or why there is none: an interval without width says only that these groups cannot tell."""
    try:
        jackknifed = jackknife_estimate(value, left_out)
    except EvaluationError as error:
        return None, error.problem
    if not jackknifed.has_width:
        return None, f"{value:.4g} whichever group is left out, so these groups cannot tell how sure it is"
    return jackknifed, ""
