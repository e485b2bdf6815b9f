"""All monitors of a training, but for those of what is not finite, of spikes and of trends (spikes.py, trends.py)."""

from __future__ import annotations

from lifecycle.training.monitors.curve import ConstantPredictions, Overfitting, Plateau, RiseAboveBest
from lifecycle.training.monitors.feeding import RepeatedBatches, ThroughputDrop, WaitsForRows
from lifecycle.training.monitors.gradients import NotZeroed, StaleGradients
from lifecycle.training.monitors.layers import DeadLayer, NotOptimized, Unchanged
from lifecycle.training.monitors.monitor import Monitor
from lifecycle.training.monitors.resources import GpuIdle, MemoryGrowth, ReplicasApart
from lifecycle.training.monitors.updates import RoundedAway, UpdateRatio


def all_monitors(
    planned_steps: int,
    steps_per_epoch: int,
    *,
    frozen: tuple[str, ...] = (),
    prior_loss: float | None = None,
    memory_limit_bytes: float | None = None,
) -> tuple[Monitor, ...]:
    """A fresh monitor of each kind, the surest first.

    `frozen` are patterns of parameters that are declared not to train. `prior_loss` is that of the best answer which
    looks at no input, None where it is not known.
    """
    return (
        StaleGradients(), NotZeroed(), RepeatedBatches(steps_per_epoch), NotOptimized(frozen), DeadLayer(),
        Unchanged(frozen), RoundedAway(), UpdateRatio(), ConstantPredictions(), Plateau(planned_steps, prior_loss),
        RiseAboveBest(), Overfitting(), WaitsForRows(), ThroughputDrop(), MemoryGrowth(planned_steps, memory_limit_bytes),
        GpuIdle(), ReplicasApart(),
    )  # fmt: skip
