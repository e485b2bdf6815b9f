"""Intervals of shares of rows where few rows, or few of one outcome, tell of them.

The t by group (interval.py) is symmetric, so of a share near 0 or 1 it leaves [0, 1] and is too narrow on the other
side: of 10 % over 8 groups of 10 rows that resemble each other (intraclass correlation 0.3) it held the truth 0.84
times, Korn and Graubard's 0.96; of a gain of -0.015 where 3 % of 300 rows differ, 0.87, Tango's 0.97
(docs/decisions/0068).

- One model's share: Clopper and Pearson's exact interval (1934) with the effective number of rows, which are the rows
  over the design effect, narrowed by the ratio of the quantiles of t (Korn & Graubard 1998).
- The difference of two models' shares on the same rows: Tango's score interval (1998) with the effective number of rows
  of the difference. It holds 0 exactly where McNemar's test does not reject at 5 %.

Where every row is a group, both are the intervals of independent rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.figures import BY_GROUP, Estimate
from trainworthy.lifecycle.tasks.interval import without_spread

if TYPE_CHECKING:
    import numpy as np

# With fewer effective rows than that, or effective rows with the rarer outcome, the methods of this file are used.
FEW_ROWS = 100
FEW_EVENTS = 30
_TAIL = 0.025
_LEAST = 1e-12


def share_interval(estimate: Estimate, hits: np.ndarray, sizes: np.ndarray, rows: int) -> Estimate:
    """An estimate of a share with the interval that its rows allow, within [0, 1]; arguments as for share_of_few."""
    if not estimate.has_width:
        estimate = without_spread(estimate, 1.0, int((sizes > 0).sum()))
    estimate = share_of_few(estimate, hits, sizes, rows)
    return estimate.model_copy(update={"low": max(0.0, estimate.low), "high": min(1.0, estimate.high)})


def share_of_few(estimate: Estimate, hits: np.ndarray, sizes: np.ndarray, rows: int) -> Estimate:
    """A share with its exact interval if few effective rows tell of it; else, and where groups are alike, as it is.

    `hits` and `sizes` are the sums over each group, `(G,)`, of rows with the outcome and of all that count, by weight;
    `rows` is how many rows count.
    """
    from scipy.special import betaincinv

    known = sizes > 0
    hits, sizes = hits[known], sizes[known]
    share, groups = float(hits.sum() / sizes.sum()), len(sizes)
    if groups < 2 or not estimate.has_width or estimate.method != BY_GROUP:
        return estimate
    effective = _effective_rows(_variance(hits, sizes, share), share * (1 - share), groups, rows)
    if effective >= FEW_ROWS and effective * min(share, 1 - share) >= FEW_EVENTS:
        return estimate
    low = float(betaincinv(share * effective, (1 - share) * effective + 1, _TAIL))
    high = float(betaincinv(share * effective + 1, (1 - share) * effective, 1 - _TAIL))
    return estimate.model_copy(
        update={"low": low, "high": high, "method": "exact", "made": _method_note("Clopper–Pearson", effective, rows)}
    )


def difference_of_few(
    estimate: Estimate, better: np.ndarray, worse: np.ndarray, sizes: np.ndarray, rows: int
) -> Estimate:  # fmt: skip
    """The difference of two shares on the same rows, with Tango's interval if few effective rows differ.

    `better` and `worse` are the sums over each group, `(G,)`, of rows in which one model alone has the outcome, by
    weight; `sizes` and `rows` as for share_of_few. Where the groups are alike, as when no row differs, they tell as
    much as so many rows: how much those of a group resemble each other is not to be seen then.
    """
    known = sizes > 0
    better, worse, sizes = better[known], worse[known], sizes[known]
    total, groups = float(sizes.sum()), len(sizes)
    more, less = float(better.sum()) / total, float(worse.sum()) / total
    gain, of_one_row = more - less, more + less - (more - less) ** 2
    effective = float(groups)
    if estimate.has_width and of_one_row > 0 and groups > 1:
        effective = _effective_rows(_variance(better - worse, sizes, gain), of_one_row, groups, rows)
    if effective * (more + less) >= FEW_EVENTS:
        return estimate
    low, high = tango(more * effective, less * effective, effective)
    return estimate.model_copy(
        update={
            "value": gain,
            "low": low,
            "high": high,
            "method": "score",
            "made": _method_note("Tango's score interval", effective, rows),
        }
    )


def tango(better: float, worse: float, rows: float) -> tuple[float, float]:
    """The 95 % score interval of (better - worse) / rows, of pairs that differ one way or the other (Tango 1998)."""
    from scipy.optimize import brentq

    def away(difference: float) -> float:
        """By how many standard errors the estimate lies above a difference."""
        half = (2 * rows - better + worse) * difference - better - worse
        root = math.sqrt(max(0.0, half * half + 8 * rows * worse * difference * (1 - difference)))
        # The most likely share of pairs that are worse, if that is the difference.
        share = (root - half) / (4 * rows)
        variance = rows * (2 * share + difference * (1 - difference))
        return (better - worse - rows * difference) / math.sqrt(max(variance, _LEAST))

    value, reach, ends = (better - worse) / rows, _normal(), []
    for end, beyond in ((-1.0, reach), (1.0, -reach)):
        edge = end * (1 - _LEAST)
        # Where the pairs do not speak against the very edge, it is the end.
        crossed = (away(edge) - beyond) * beyond > 0
        crossing = brentq(lambda at, beyond=beyond: away(at) - beyond, edge, value) if crossed else end
        ends.append(float(crossing))  # pyright: ignore[reportArgumentType]
    return ends[0], ends[1]


def _variance(sums: np.ndarray, sizes: np.ndarray, value: float) -> float:
    """Of the ratio of two sums over groups, linearised (interval.py)."""
    residuals = sums - value * sizes
    groups = len(sizes)
    return groups / max(1, groups - 1) * float(residuals @ residuals) / float(sizes.sum()) ** 2


def _effective_rows(variance: float, of_one_row: float, groups: int, rows: int) -> float:
    """How many independent rows tell as much: the rows over the design effect, less for what few groups say of it."""
    from scipy.special import stdtrit

    design_effect = max(1.0, variance * (rows - 1) / of_one_row)
    return rows / design_effect * float(stdtrit(rows - 1, 1 - _TAIL) / stdtrit(groups - 1, 1 - _TAIL)) ** 2


def _normal() -> float:
    from scipy.special import ndtri

    return float(ndtri(1 - _TAIL))


def _method_note(method: str, effective: float, rows: int) -> str:
    return f"{method}, {effective:.0f} effective of {rows} rows"
