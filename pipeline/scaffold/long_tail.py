"""Whether a number has a long right tail, such as prices have, and what that means for its loss and its metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Of the rows: those with the largest values.
LARGEST = 0.1


def share_of_largest(values: Sequence[float] | np.ndarray) -> float:
    """What share of the squared error of the mean the tenth with the largest values makes, 0 to 1; 0 for one value.

    Of a normal number it is 0.32, of an even one 0.24, of an exponential one 0.63, of a log-normal one whose logarithm
    has a standard deviation of 1 it is 0.8.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    squares = (ordered - ordered.mean()) ** 2
    largest = max(1, round(LARGEST * len(ordered)))
    return float(squares[-largest:].sum() / squares.sum()) if squares.sum() > 0 else 0.0


def remarks(name: str, values: Sequence[float] | np.ndarray) -> tuple[str, ...]:
    """Lines about the choice that a long right tail leaves to people; none where a tenth does not make most of it."""
    share = share_of_largest(values)
    if share <= 0.5:
        return ()
    logarithm = "log" if np.min(values) > 0 else "log1p" if np.min(values) >= 0 else ""
    inverse = (
        f"torch.{logarithm}(targets) in loss_fn, its inverse in predict, a metric of your own (docs/how-to/tasks.md)"
    )
    return (
        f"{name!r} has a long right tail: the tenth of the rows with the largest values makes {share:.0%} of the",
        "squared error of a constant answer, so the squared loss and rmse go by those rows. Which rows should count?",
        "- the large ones, such as a sum of money that has to be right: keep both;",
        "- all rows alike: the median (trainworthy new --quantiles 0.5), or an absolute error in loss_fn and mae here;",
        f"- errors relative to the value: {inverse}."
        if logarithm
        else "- values below 0 have no logarithm, so that a loss of relative errors is none of the choices.",
    )
