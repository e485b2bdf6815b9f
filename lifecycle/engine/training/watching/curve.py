"""Windowed means of the loss that each batch had before it was trained on.

In the first pass that is progressive validation: no update has seen the rows. From then on it is training loss, so a
window never holds steps of the first pass and of a later one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from trainworthy.lifecycle.protocol.training_figures import CurvePoint

# Of fewer updates the spread of their means says nothing about a window's error.
FEWEST_MEANS = 5
# Where nobody knows whether an update has seen a row before, no window may be called progressive validation.
LATER_PASS = 2


@dataclass
class Curve:
    """Finished windows, and the sums of the open one."""

    points: list[CurvePoint] = field(default_factory=list)
    _steps: int = 0
    _rows: int = 0
    _sum: float = 0.0
    _squared: float = 0.0

    def add(
        self, step: int, rows: int, loss: float, squared: float, rate: float, window: int, steps_per_epoch: int
    ) -> CurvePoint | None:
        """Add a batch of `rows` rows with mean `loss` and mean squared loss; the point of the window that it closes.

        Closes a window of `window` steps, or a shorter one where the first pass of `steps_per_epoch` steps ends. One
        without rows, all of which an oversampled epoch had met before, has no point.
        """
        self._steps += 1
        self._rows += rows
        self._sum += loss * rows
        self._squared += squared * rows
        if not self._closes(step, window, steps_per_epoch):
            return None
        return self._close(curve_point(step, self._rows, self._sum, self._squared, rate, steps_per_epoch))

    def add_mean(self, step: int, rows: int, loss: float, rate: float, window: int) -> CurvePoint | None:
        """Add an update of which the mean loss of its rows is known, and not which rows; the window that it closes.

        Its standard error is that of the mean of its updates' losses.
        """
        self._steps += 1
        self._rows += rows
        self._sum += loss * rows
        self._squared += loss * loss * rows
        if not self._closes(step, max(FEWEST_MEANS, window)):
            return None
        mean = self._sum / self._rows
        variance = max(0.0, self._squared / self._rows - mean * mean)
        return self._close(
            CurvePoint(
                step=step, rows=self._rows, loss=mean, standard_error=math.sqrt(variance / (self._steps - 1)),
                learning_rate=rate, pass_number=LATER_PASS,
            )
        )  # fmt: skip

    def pass_over(self, step: int, rate: float, window: int, steps_per_epoch: int) -> CurvePoint | None:
        """A batch that was not trained on: a step of the window, whose rows count nowhere."""
        self._steps += 1
        if not self._closes(step, window, steps_per_epoch):
            return None
        return self._close(curve_point(step, self._rows, self._sum, self._squared, rate, steps_per_epoch))

    def _closes(self, step: int, window: int, steps_per_epoch: int = 0) -> bool:
        return self._rows > 0 and (self._steps >= window or step == steps_per_epoch)

    def _close(self, point: CurvePoint) -> CurvePoint:
        self.points.append(point)
        self._steps, self._rows, self._sum, self._squared = 0, 0, 0.0, 0.0
        return point

    def state_dict(self) -> dict[str, Any]:
        """Plain values, so that a resumed curve goes on exactly, also after a way through JSON."""
        open_window = [self._steps, self._rows, self._sum, self._squared]
        return {"points": [point.model_dump() for point in self.points], "open": open_window}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave."""
        self.points = [CurvePoint(**point) for point in state["points"]]
        self._steps, self._rows, self._sum, self._squared = state["open"]


def curve_point(
    step: int, rows: float, total: float, squared: float, rate: float, steps_per_epoch: int, **marks: Any
) -> CurvePoint:
    """The point of a window from the sums of its rows' losses and of their squares."""
    mean = total / rows
    error = math.sqrt(max(0.0, squared / rows - mean * mean) / rows)
    number = -(-step // steps_per_epoch)
    return CurvePoint(
        step=step, rows=int(rows), loss=mean, standard_error=error, learning_rate=rate, pass_number=number, **marks
    )
