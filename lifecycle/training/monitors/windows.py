"""Means of the loss over a few updates, with a standard error that holds for losses that swing as well."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lifecycle.training.monitors.signals import Signals

# Updates of a window: those between two samples.
WINDOW = 20


@dataclass
class Window:
    """Mean loss of updates `first` to `last`, its standard error, the lower quartile, and the mean learning rate."""

    first: int
    last: int
    mean: float
    error: float
    low: float
    rate: float


@dataclass
class Windows:
    """Closes a window every WINDOW updates; an update that is not finite is left out."""

    _losses: list[float] = field(default_factory=list)
    _rates: list[float] = field(default_factory=list)
    _rows: int = 0
    _squares: float = 0.0
    _first: int = 0

    def add(self, seen: Signals) -> Window | None:
        """The window that this update closes, if it does."""
        if not abs(seen.loss) < math.inf or not abs(seen.squared) < math.inf:
            return None
        if not self._losses:
            self._first = seen.step
        self._losses.append(seen.loss)
        self._rates.append(seen.learning_rate)
        self._rows += seen.rows
        self._squares += (seen.squared - seen.loss * seen.loss) * seen.rows
        return self._close(seen.step) if len(self._losses) == WINDOW else None

    def _close(self, step: int) -> Window:
        mean = math.fsum(self._losses) / WINDOW
        between = math.fsum((one - mean) ** 2 for one in self._losses) / (WINDOW - 1)
        # The larger of what rows and what updates say: batches are neither independent nor alike.
        within = max(0.0, self._squares) / self._rows / self._rows
        error, low = math.sqrt(max(between / WINDOW, within)), sorted(self._losses)[WINDOW // 4]
        window = Window(self._first, step, mean, error, low, sum(self._rates) / WINDOW)
        self._losses, self._rates, self._rows, self._squares = [], [], 0, 0.0
        return window

    def state_dict(self) -> dict[str, Any]:
        return {
            "losses": list(self._losses),
            "rates": list(self._rates),
            "rest": [self._rows, self._squares, self._first],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._losses, self._rates = list(state["losses"]), list(state["rates"])
        self._rows, self._squares, self._first = state["rest"]
