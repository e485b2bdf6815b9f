"""95 % intervals that take whole groups (for example days) as the units of resampling.

Rows of a group are not independent: on flights the standard error by day of a paired log-loss gain
is 7.2 times the one of independent rows. The interval is value ± t(0.975, G - 1) × standard error by
G groups: linearised ratio estimator for means (cluster-robust, CR1; Cameron & Miller 2015), else the
delete-one-group jackknife (Efron & Tibshirani 1993, ch. 11). t rather than a percentile bootstrap,
since over 30 to 91 real days t covered 0.91 to 0.92 and the percentiles 0.89 to 0.91: still less than
0.95, because neighbouring days resemble each other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lifecycle.errors import EvaluationError, did_you_mean
from lifecycle.evaluation.metrics import (
    METRICS,
    ROW_LOSSES,
    checked,
    checked_labels,
    equal_mass_bins,
    pair_wins,
    require_both_classes,
    row_loss,
)
from lifecycle.records import Estimate

if TYPE_CHECKING:
    import numpy as np

# With fewer, one unusual group decides the interval: t(0.975, 7) is already 2.4.
MINIMUM_GROUPS = 8
_CONFIDENCE_QUANTILE = 0.975
# A bound so near that it needs this many times the groups is not a matter of more rows.
_MOST_TIMES_THE_GROUPS = 50


def grouped_estimate(metric: str, labels: Any, probabilities: Any, groups: Any) -> Estimate:
    """The metric (log_loss, brier, auc, calibration_error) with its interval by group.

    `groups` has shape `(N,)` and any type. Raises EvaluationError on fewer than 8 groups, missing
    groups or an auc that is undefined once a group is left out.
    """
    if metric not in METRICS:
        raise EvaluationError("no metric of that name", value=metric, fix=did_you_mean(metric, METRICS))
    if metric in ROW_LOSSES:
        return mean_estimate(row_loss(metric, labels, probabilities), groups)
    labels, probabilities = checked(labels, probabilities)
    codes = group_codes(groups, len(labels))
    leave_out = _auc_left_out if metric == "auc" else _calibration_error_left_out
    value, left_out = leave_out(labels, probabilities, codes)
    estimate = jackknife_estimate(value, left_out)
    # Both metrics lie in [0, 1], so no interval needs to leave it.
    return estimate.model_copy(update={"low": max(estimate.low, 0.0), "high": min(estimate.high, 1.0)})


def auc_gain(labels: Any, candidate: Any, reference: Any, groups: Any) -> Estimate:
    """AUC of the candidate less that of the reference on the same rows, with its interval by group.

    Raises EvaluationError as grouped_estimate.
    """
    scored = [checked(labels, probabilities) for probabilities in (candidate, reference)]
    codes = group_codes(groups, len(scored[0][0]))
    (better, better_left), (worse, worse_left) = (_auc_left_out(*one, codes) for one in scored)
    return jackknife_estimate(better - worse, better_left - worse_left)


def mean_estimate(values: Any, groups: Any) -> Estimate:
    """Mean of per-row values `(N,)` with its interval by group."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise EvaluationError(
            "the values must be finite numbers of shape (N,)", value=values.shape, fix="score only complete rows"
        )
    codes = group_codes(groups, len(values))
    sizes, sums = np.bincount(codes), np.bincount(codes, weights=values)
    count, mean = len(sizes), float(values.mean())
    residuals = sums - mean * sizes
    variance = count / (count - 1) * float(residuals @ residuals) / len(values) ** 2
    return _estimate(mean, math.sqrt(variance), count)


def jackknife_estimate(value: float, left_out: np.ndarray) -> Estimate:
    """A statistic with its interval from the values `(G,)` it takes when each group is left out in turn."""
    import numpy as np

    count = len(left_out)
    if count < MINIMUM_GROUPS or not (math.isfinite(value) and np.isfinite(left_out).all()):
        raise EvaluationError(
            "the statistic is undefined once a group is left out, or the groups are too few",
            value=count,
            fix=f"take at least {MINIMUM_GROUPS} groups, with both labels in at least two of them",
        )
    variance = (count - 1) / count * float(np.square(left_out - left_out.mean()).sum())
    return _estimate(value, math.sqrt(variance), count)


def group_codes(groups: Any, rows: int) -> np.ndarray:
    """Groups as codes 0 … G-1, shape `(N,)`; refuses missing groups and fewer than 8 of them."""
    import numpy as np
    import pandas as pd

    codes, names = pd.factorize(np.asarray(groups) if not isinstance(groups, pd.Series) else groups)
    if len(codes) != rows or (codes < 0).any():
        raise EvaluationError(
            "every row needs a group", value=(rows, len(codes)), fix="resample by a column without missing values"
        )
    if len(names) < MINIMUM_GROUPS:
        raise EvaluationError(
            f"an interval needs at least {MINIMUM_GROUPS} groups",
            value=len(names),
            fix="take a longer window, or resample by a finer column",
        )
    return codes


def shortage(labels: Any, groups: Any, minimum_rows: int = 1) -> str:
    """Why these rows carry no interval, in words; empty if they do."""
    import numpy as np
    import pandas as pd

    if len(labels) < minimum_rows:
        return f"{len(labels)} rows, fewer than {minimum_rows}"
    labels = checked_labels(labels)
    codes, names = pd.factorize(pd.Series(groups))
    if len(names) < MINIMUM_GROUPS:
        return f"{len(names)} groups, fewer than {MINIMUM_GROUPS}"
    for label in (0, 1):
        holding = len(np.unique(codes[labels == label]))
        if holding < 2:
            return f"label {label} occurs in {holding} groups, fewer than 2"
    return ""


def _auc_left_out(labels: np.ndarray, scores: np.ndarray, codes: np.ndarray) -> tuple[float, np.ndarray]:
    """AUC, and the exact AUC without each group from one sort: pairs lost are those with a row in the group."""
    import numpy as np

    require_both_classes(labels)
    positive, count = labels == 1, int(codes.max()) + 1
    wins = np.empty_like(scores)
    wins[positive] = pair_wins(scores[positive], scores[~positive])
    wins[~positive] = pair_wins(-scores[~positive], -scores[positive])
    total, lost = wins[positive].sum(), np.bincount(codes, weights=wins)
    order = np.argsort(codes, kind="stable")
    for group, rows in enumerate(np.split(order, np.cumsum(np.bincount(codes))[:-1])):
        inside = positive[rows]
        # Pairs with both rows in the group were counted from both sides.
        lost[group] -= pair_wins(scores[rows[inside]], scores[rows[~inside]]).sum()
    positives = np.bincount(codes, weights=positive, minlength=count)
    negatives = np.bincount(codes, minlength=count) - positives
    pairs = (positives.sum() - positives) * (negatives.sum() - negatives)
    left_out = np.divide(total - lost, pairs, out=np.full(count, np.nan), where=pairs > 0)
    return float(total / (positives.sum() * negatives.sum())), left_out


def _calibration_error_left_out(
    labels: np.ndarray, probabilities: np.ndarray, codes: np.ndarray
) -> tuple[float, np.ndarray]:
    """Calibration error, and its value without each group; the bins of all rows are kept."""
    import numpy as np

    bins = equal_mass_bins(probabilities)
    shape = (int(codes.max()) + 1, int(bins.max()) + 1)
    cells = np.bincount(codes * shape[1] + bins, weights=probabilities - labels, minlength=shape[0] * shape[1])
    excess = cells.reshape(shape)
    left_out = np.abs(excess.sum(axis=0) - excess).sum(axis=1) / (len(codes) - np.bincount(codes))
    return float(np.abs(excess.sum(axis=0)).sum() / len(codes)), left_out


def groups_to_show(estimate: Estimate, spare: float) -> int | None:
    """About how many groups keep the whole interval on the value's side of a bound, if the value holds.

    `spare` is the room between value and bound, 0 or less on the wrong side. None where more groups
    would not show it: on the wrong side, or beyond 50 times as many.
    """
    # An interval narrows with the square root of the number of groups.
    reach = max(estimate.high - estimate.value, estimate.value - estimate.low)
    if spare <= 0 or reach >= math.sqrt(_MOST_TIMES_THE_GROUPS) * spare:
        return None
    return math.floor(estimate.groups * (reach / spare) ** 2) + 1


def _estimate(value: float, standard_error: float, count: int) -> Estimate:
    from scipy.special import stdtrit

    reach = float(stdtrit(count - 1, _CONFIDENCE_QUANTILE)) * standard_error
    return Estimate(value=value, low=value - reach, high=value + reach, standard_error=standard_error, groups=count)
