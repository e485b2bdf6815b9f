"""Mean of the loss over a window of updates, with a standard error that holds for losses that swing as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.protocol.signals import Signals


@dataclass(frozen=True)
class Window:
    """Mean loss of updates `first` to `last`, its standard error, the lower quartile, and the mean learning rate."""

    first: int
    last: int
    mean: float
    error: float
    low: float
    rate: float


def window_of(seen: Sequence[Signals]) -> Window:
    """Of updates with finite losses."""
    losses, rows = [one.loss for one in seen], sum(one.rows for one in seen)
    mean = math.fsum(losses) / len(seen)
    between = math.fsum((one - mean) ** 2 for one in losses) / (len(seen) - 1)
    # The larger of what rows and what updates say: batches are neither independent nor alike.
    within = max(0.0, math.fsum((one.squared - one.loss * one.loss) * one.rows for one in seen)) / rows / rows
    error, low = math.sqrt(max(between / len(seen), within)), sorted(losses)[len(losses) // 4]
    rate = math.fsum(one.learning_rate for one in seen) / len(seen)
    return Window(seen[0].step, seen[-1].step, mean, error, low, rate)
