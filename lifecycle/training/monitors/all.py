"""The monitors of a training, but for what is not finite, which is always watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.training.monitors.monitor import Monitor

if TYPE_CHECKING:
    from lifecycle.training.loop import TrainState


def all_monitors(state: TrainState) -> tuple[Monitor, ...]:
    """Fresh ones for this state."""
    return ()
