"""The ratio of two models' figures over pairs of processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Where a figure's bounds lie this far apart, other work took part of the time.
_BUSY_RATIO = 1.1


@dataclass(frozen=True)
class Span:
    """A figure of one process: with nothing else to do on the machine at least `least` and at most `most`, above 0."""

    least: float
    most: float

    @property
    def busy(self) -> bool:
        return self.most > _BUSY_RATIO * self.least


@dataclass(frozen=True)
class Ratio:
    """The median of first / second over pairs; with 95 % it lies between `low` and `high`, None for too few pairs."""

    value: float
    low: float | None
    high: float | None


def paired_ratio(pairs: Sequence[tuple[Span, Span]]) -> Ratio:
    """The ratio of the pairs' first to their second.

    The interval is the one of order statistics (the sign test's, scipy.stats.quantile_test), which asks nothing of the
    distribution. Its low end is of the least that each ratio may be, its high end of the most: what other work may have
    done makes it wider. Six pairs are the fewest that have one of 95 %.
    """
    value = statistics.median(first.most / second.most for first, second in pairs)
    low, _ = _interval([first.least / second.most for first, second in pairs])
    _, high = _interval([first.most / second.least for first, second in pairs])
    return Ratio(value, low, high)


def _interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    import math

    # 0.7 CPU seconds to import, which a server that compares nothing would pay at its start.
    from scipy.stats import quantile_test

    interval = quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    low, high = float(interval.low), float(interval.high)
    return (None, None) if math.isnan(low) or math.isnan(high) else (low, high)
