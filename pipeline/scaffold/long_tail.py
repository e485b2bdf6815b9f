"""Whether a number has a long right tail, such as prices have, and what that means for its loss and its metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Of the rows: those with the largest values, and those with the smallest.
TENTH = 0.1
# A tenth of fewer rows is a handful, of which one decides.
FEWEST_ROWS = 100
# Of the squared error: most of it.
MOST = 0.5
# How much further the largest tenth begins above the median than the smallest ends below it. Of a symmetric number
# that is 1, whatever its tails; of a Weibull one of shape 1.5 it is 1.7, of an exponential one 2.7, of a log-normal one
# whose logarithm has a standard deviation of 1 it is 3.6.
FURTHER = 2.0


def share_of_largest(values: Sequence[float] | np.ndarray) -> float:
    """What share of the squared error of the mean the tenth with the largest values makes, 0 to 1; 0 for one value.

    Of a normal number it is 0.32, of an even one 0.24, of an exponential one 0.63, of a log-normal one whose logarithm
    has a standard deviation of 1 it is 0.8.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    squares = (ordered - ordered.mean()) ** 2
    largest = max(1, round(TENTH * len(ordered)))
    return float(squares[-largest:].sum() / squares.sum()) if squares.sum() > 0 else 0.0


def has_long_right_tail(values: Sequence[float] | np.ndarray) -> bool:
    """True if the largest tenth makes most of the squared error, with its largest value and without, and begins much
    further from the median than the smallest tenth.

    Of heavy tails on both sides one row may make most of the error, on the side where it fell. Where one value is that
    of more than a tenth of the rows, as 0 is of what rarely happens, a tenth is no tail. Values that are not finite are
    left out.
    """
    finite = np.asarray(values, dtype=np.float64)
    finite = np.sort(finite[np.isfinite(finite)])
    if len(finite) < FEWEST_ROWS or np.unique(finite, return_counts=True)[1].max() > TENTH * len(finite):
        return False
    low, middle, high = np.quantile(finite, (TENTH, 0.5, 1 - TENTH))
    further = high - middle > FURTHER * (middle - low)
    return bool(further) and min(share_of_largest(finite), share_of_largest(finite[:-1])) > MOST


def remarks(name: str, values: Sequence[float] | np.ndarray) -> tuple[str, ...]:
    """Lines about what a long right tail means for the draft, and the draft that does without; none without a tail."""
    if not has_long_right_tail(values):
        return ()
    share = share_of_largest(np.asarray(values)[np.isfinite(values)])
    return (
        f"{name!r} has a long right tail: the tenth of the rows with the largest values makes {share:.0%} of the",
        "squared error of a constant answer, so the squared loss and rmse go by those rows. Keep both where these rows",
        "have to be right, as a sum of money has. Where all rows count alike, predict the median: draft a use case of",
        "another name by trainworthy new with the same options and --quantiles 0.5.",
    )
