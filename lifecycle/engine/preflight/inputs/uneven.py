"""How unequal windows of draws are, against shuffles of the same draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Classes of a value that has more kinds, and parts of a file.
CELLS = 16
# Odds of a fair order, by a gamma distribution with the mean and variance of 40 shuffles; its tail is too thin for rare
# labels, which gave 3e-8 in 17,000 fair orders, hence the distance. And how many times its mean the statistic must be:
# sorted rows have as many as a window has rows.
FALSE_ALARM, TIMES, SHUFFLES = 1e-12, 1.5, 40
# A label that has fewer rows in the mean window counts as the most frequent one.
FEWEST_EACH = 1.0


@dataclass(frozen=True)
class Uneven:
    """How unequal windows are: their chi-square over that of shuffled draws, and the odds of it."""

    times: float
    odds: float

    @property
    def alarms(self) -> bool:
        return self.odds < FALSE_ALARM and self.times > TIMES


def cells_of(values: np.ndarray) -> np.ndarray:
    """Values as class numbers: themselves if they are few, else CELLS quantiles."""
    kinds, numbers = np.unique(values, return_inverse=True)
    if len(kinds) <= CELLS:
        return numbers
    edges = np.quantile(values, np.linspace(0, 1, CELLS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right")


def uneven(cells: np.ndarray) -> Uneven:
    """Chi-square of the windows' counts against those of all, compared with shuffles of the same draws."""
    from scipy.stats import gamma

    if len(cells) < 2:
        return Uneven(1.0, 1.0)
    totals = np.bincount(cells.ravel())
    # A handful of rows can't show an order: three of five in one window happen.
    cells = np.where(totals[cells] >= FEWEST_EACH * len(cells), cells, int(totals.argmax()))
    generator = np.random.default_rng(0)
    seen, flat = _chi_square(cells), cells.ravel().copy()
    null = []
    for _ in range(SHUFFLES):
        generator.shuffle(flat)
        null.append(_chi_square(flat.reshape(cells.shape)))
    mean, variance = float(np.mean(null)), float(np.var(null))
    if mean <= 0 or variance <= 0:
        return Uneven(1.0, 1.0)
    return Uneven(seen / mean, float(gamma.sf(seen, mean**2 / variance, scale=variance / mean)))


def _chi_square(cells: np.ndarray) -> float:
    count = int(cells.max()) + 1
    offset = cells + np.arange(len(cells))[:, None] * count
    seen = np.bincount(offset.ravel(), minlength=len(cells) * count).reshape(len(cells), count)
    expected = np.maximum(seen.mean(axis=0), 1e-12)
    return float((np.square(seen - expected) / expected).sum())
