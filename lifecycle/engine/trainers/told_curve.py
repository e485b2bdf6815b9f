"""The curve of a training that tells only the mean loss of each update."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from trainworthy.lifecycle.protocol.records import CurvePoint

# Of fewer updates the spread of their losses says nothing about a window's error.
FEWEST_UPDATES = 5
# Nobody knows whether an update has seen a row before, so that no window may be called progressive validation.
LATER_PASS = 2


@dataclass
class ToldCurve:
    """Finished windows, and what was told of the open one: rows and mean loss of each update.

    A window's standard error is that of the mean of its updates' losses, since no row's own loss is known.
    """

    window: int
    points: list[CurvePoint] = field(default_factory=list)
    _open: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: int, rows: int, loss: float, rate: float) -> CurvePoint | None:
        """The window that this update closes, if it does."""
        self._open.append((rows, loss))
        if len(self._open) < max(FEWEST_UPDATES, self.window):
            return None
        count, total = len(self._open), sum(rows for rows, _ in self._open)
        mean = sum(rows * loss for rows, loss in self._open) / total
        variance = sum(rows * (loss - mean) ** 2 for rows, loss in self._open) / total * count / (count - 1)
        self._open = []
        point = CurvePoint(
            step=step, rows=total, loss=mean, standard_error=math.sqrt(variance / count), learning_rate=rate,
            pass_number=LATER_PASS,
        )  # fmt: skip
        self.points.append(point)
        return point

    def state_dict(self) -> dict[str, Any]:
        """Plain values, so that a resumed curve goes on exactly."""
        return {"points": [point.model_dump() for point in self.points], "open": self._open}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave, also after a way through JSON."""
        self.points = [CurvePoint(**point) for point in state["points"]]
        self._open = [(rows, loss) for rows, loss in state["open"]]
