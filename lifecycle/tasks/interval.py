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

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import BY_GROUP, Comparison, Estimate

if TYPE_CHECKING:
    import numpy as np

# With fewer, one unusual group decides the interval: t(0.975, 7) is already 2.4.
MINIMUM_GROUPS = 8
_CONFIDENCE_QUANTILE = 0.975
# A bound so near that it needs this many times the groups is not a matter of more rows.
_MOST_TIMES_THE_GROUPS = 50


def mean_estimate(values: Any, groups: Any, weights: Any = None) -> Estimate:
    """Mean of per-row values `(N,)`, weighed by `weights` `(N,)`, with its interval by group."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise EvaluationError(
            "the values must be finite numbers of shape (N,)", value=values.shape, fix="score only complete rows"
        )
    codes = group_codes(groups, len(values))
    sizes = np.bincount(codes, weights=weights)
    sums = np.bincount(codes, weights=values if weights is None else values * weights)
    count, mean = len(sizes), float(np.average(values, weights=weights))
    residuals = sums - mean * sizes
    variance = count / (count - 1) * float(residuals @ residuals) / float(sizes.sum()) ** 2
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


def without_spread(estimate: Estimate, span: float, groups: int) -> Estimate:
    """An estimate of groups that are all alike, with the interval that so many of them allow.

    None of `groups` differs, so with 97.5 % confidence each way fewer than 1 - 0.025^(1/groups) of all groups do
    (Clopper and Pearson 1934, for no event), and if they differed by the metric's whole `span`, its mean moved by that
    share of it. Left as it is, with width 0, for fewer than 8 groups and a metric without bounds.
    """
    if groups < MINIMUM_GROUPS or not math.isfinite(span):
        return estimate
    reach = span * (1 - (1 - _CONFIDENCE_QUANTILE) ** (1 / groups))
    return estimate.model_copy(
        update={
            "low": estimate.value - reach,
            "high": estimate.value + reach,
            "method": "all_alike",
            "made": f"Clopper–Pearson, {groups} groups that are all alike",
        }
    )


def never_negative(estimate: Estimate) -> Estimate:
    """The mean of values that are never below 0, with its interval on the scale of its logarithm if t reaches below 0.

    value · exp(± reach / value), by the delta method: it is above 0, and as skewed as such means are. Where few rows
    have nearly all of the loss it held the truth 0.94 to 0.98 times, t by group 0.86 to 0.88 (docs/decisions/0093).
    """
    if estimate.method != BY_GROUP or estimate.low >= 0 or estimate.value <= 0:
        return estimate
    factor = math.exp((estimate.value - estimate.low) / estimate.value)
    return estimate.model_copy(
        update={
            "low": estimate.value / factor,
            "high": estimate.value * factor,
            "method": "log_scale",
            "made": f"t by group of the logarithm, {estimate.groups} groups",
        }
    )


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


def few_groups(labels: Any, groups: Any, minimum_rows: int) -> tuple[str, np.ndarray]:
    """Why rows and groups are too few for an interval, in words or empty, and the groups' codes `(N,)`."""
    import pandas as pd

    codes, names = pd.factorize(pd.Series(groups))
    if len(labels) < minimum_rows:
        return f"{len(labels)} rows, fewer than {minimum_rows}", codes
    if len(names) < MINIMUM_GROUPS:
        return f"{len(names)} groups, fewer than {MINIMUM_GROUPS}", codes
    return "", codes


def spread_problem(classes: int) -> str:
    """That too few classes, none or one, lie in more than one group."""
    return (
        f"{classes or 'none'} of the classes {'lies' if classes == 1 else 'lie'} in more than one group, fewer than 2"
    )


def joined_codes(codes: np.ndarray, most: int) -> np.ndarray:
    """Codes `(N,)` of groups joined, neighbours by code, into at most so many of about equal number."""
    count = int(codes.max()) + 1
    return codes if count <= most else codes * most // count


def groups_to_show(estimate: Estimate, spare: float) -> int | None:
    """About how many groups keep the whole interval on the value's side of a bound, if the value holds.

    `spare` is the room between value and bound, 0 or less on the wrong side. None where more groups
    would not show it: on the wrong side, of an interval without a width, or beyond 50 times as many.
    """
    reach = max(estimate.high - estimate.value, estimate.value - estimate.low)
    if spare <= 0 or reach == 0:
        return None
    times = _times_the_groups(estimate, reach / spare)
    return None if times >= _MOST_TIMES_THE_GROUPS else math.floor(estimate.groups * times) + 1


def _times_the_groups(estimate: Estimate, excess: float) -> float:
    """How many times the groups make the interval's reach the `excess`-th part of what it is."""
    if estimate.method != "all_alike":
        # An interval narrows with the square root of the number of groups.
        return excess**2
    # without_spread for another number of groups: of a share of the span.
    share = (1 - (1 - _CONFIDENCE_QUANTILE) ** (1 / estimate.groups)) / excess
    return math.log(1 - _CONFIDENCE_QUANTILE) / math.log1p(-share) / estimate.groups if share < 1 else 0.0


def rows_and_room(comparison: Comparison, room: float) -> tuple[Estimate, float]:
    """What more groups narrow, and the room between gain and bound that it may fill; 0 where the seeds fill it all."""
    from scipy.special import stdtrit

    spread = comparison.seeds
    if spread is None or not spread.sd or room <= 0:
        return comparison.gain, room
    of_seeds = float(stdtrit(spread.seeds - 1, _CONFIDENCE_QUANTILE)) * spread.sd
    return spread.by_rows, math.sqrt(max(0.0, room**2 - of_seeds**2))


def _estimate(value: float, standard_error: float, count: int) -> Estimate:
    from scipy.special import stdtrit

    reach = float(stdtrit(count - 1, _CONFIDENCE_QUANTILE)) * standard_error
    return Estimate(value=value, low=value - reach, high=value + reach, standard_error=standard_error, groups=count)
