"""Some of many rows, the same ones each time: evenly spaced, or one at a random place of each equal stretch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# A quantile of so many rows is known to 0.3 % of them.
ROWS_OF_QUANTILES = 100_000


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """At most `most` numbers of `count` rows, int64 and ascending, the first and the last among them; all if no more.

    For rows whose order has no period: a sample that is drawn already, batches, the rows of one file.
    """
    import numpy as np

    return np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)


def evenly_spread(count: int, most: int) -> np.ndarray:
    """At most `most` numbers of `count` rows, ascending, the same ones each time; all of them if there are no more.

    One at a random place of each of `most` equal stretches: every n-th row of a table that repeats itself with the
    period n would be the same hour of each day.
    """
    import numpy as np

    bounds = np.arange(min(count, most) + 1) * count // max(min(count, most), 1)
    within = np.random.default_rng(0).random(len(bounds) - 1)
    return bounds[:-1] + (within * np.diff(bounds)).astype(np.int64)
