"""Progressive validation: windowed means of the loss that each batch had before it was trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lifecycle.records import CurvePoint


@dataclass
class Curve:
    """Finished windows, and the sums of the open one."""

    points: list[CurvePoint] = field(default_factory=list)
    _steps: int = 0
    _rows: int = 0
    _sum: float = 0.0
    _squared: float = 0.0

    def add(self, step: int, rows: int, loss: float, squared: float, rate: float, window: int) -> None:
        """Add a batch of `rows` rows with mean `loss` and mean squared loss; closes a window of `window` steps."""
        self._steps += 1
        self._rows += rows
        self._sum += loss * rows
        self._squared += squared * rows
        if self._steps >= window:
            mean = self._sum / self._rows
            variance = max(0.0, self._squared / self._rows - mean * mean)
            error = math.sqrt(variance / self._rows)
            self.points.append(
                CurvePoint(step=step, rows=self._rows, loss=mean, standard_error=error, learning_rate=rate)
            )
            self._steps, self._rows, self._sum, self._squared = 0, 0, 0.0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Plain values, so that a resumed curve goes on exactly."""
        open_window = [self._steps, self._rows, self._sum, self._squared]
        return {"points": [point.model_dump() for point in self.points], "open": open_window}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave."""
        self.points = [CurvePoint(**point) for point in state["points"]]
        self._steps, self._rows, self._sum, self._squared = state["open"]
