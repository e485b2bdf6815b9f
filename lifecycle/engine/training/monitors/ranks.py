"""How many of the newest losses must lie above how many of those before, so that chance does not do it.

Of losses that are drawn alike every order is as likely as any other, whatever their distribution: heavy tails, a rare
row in one batch of five, batches of one. So it is known how often at least so many of the newest lie above all but so
many of those before: that is the precedence test (Nelson 1963, Technometrics 5, 491-499). Losses that fall make it
rarer: each is then below what it would have been, had it come earlier.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache

# What is promised: so many false alarms a training of so many updates at most, where losses are drawn alike or fall.
FALSE_ALARMS, UPDATES = 1e-3, 100_000


def bar(before: Sequence[float], newest: int, above: int, chance: float) -> float:
    """What `above` of the `newest` values exceed by chance with at most that probability; infinite if there is no such.

    Equal values count as not above, so that many of them only make it rarer.
    """
    rank = _lowest_rank(len(before), newest, above, chance)
    return heapq.nlargest(rank, before)[-1] if rank else math.inf


@lru_cache(maxsize=4096)
def _lowest_rank(before: int, newest: int, above: int, chance: float) -> int:
    """The largest r for which so many newest values lie above the r-th highest of those before so rarely; 0 if none."""
    rank = 0
    while rank < before and probability(before, newest, above, rank + 1) <= chance:
        rank += 1
    return rank


def probability(before: int, newest: int, above: int, rank: int) -> float:
    """That at least `above` of `newest` values lie above the `rank`-th highest of `before` others, all drawn alike.

    It is that of at least so many newest among the above + rank - 1 highest of all.
    """
    # 0.7 CPU seconds to import, which few updates would not repay: it is asked from the first window on.
    from scipy.stats import hypergeom

    return float(hypergeom.sf(above - 1, before + newest, above + rank - 1, newest))
