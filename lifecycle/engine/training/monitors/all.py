"""The monitors of a training, but for what is not finite, which is always watched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainworthy.lifecycle.engine.training.monitors.curve import (
    ConstantPredictions,
    Level,
    Overfitting,
    Plateau,
    RiseAboveBest,
)
from trainworthy.lifecycle.engine.training.monitors.feeding import RepeatedBatches, ThroughputDrop, WaitsForRows
from trainworthy.lifecycle.engine.training.monitors.gradients import NotZeroed, StaleGradients
from trainworthy.lifecycle.engine.training.monitors.layers import DeadLayer, NotOptimized, Unchanged
from trainworthy.lifecycle.engine.training.monitors.monitor import Monitor
from trainworthy.lifecycle.engine.training.monitors.resolution import rounds_away
from trainworthy.lifecycle.engine.training.monitors.resources import GpuIdle, MemoryGrowth, ReplicasApart
from trainworthy.lifecycle.engine.training.monitors.updates import RoundedAway, UpdateRatio, WeightsShrink
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.plan import Plan


def all_monitors(
    state: TrainState,
    plan: Plan,
    *,
    frozen: tuple[str, ...] = (),
    prior_loss: float | None = None,
    memory_limit_bytes: float | None = None,
    reweighted: bool = False,
    without_dropout: Callable[[], Level | None] = lambda: None,
) -> tuple[Monitor, ...]:
    """Fresh ones for this state, the surest first.

    `frozen` are patterns of parameters that are declared not to train. `prior_loss` is that of the best answer which
    looks at no input, None where it is not known, and for weighted rows: the losses that are seen are unweighted. So in
    a `reweighted` training they may rise while what is trained falls, and a rise above the best is not looked for.
    `without_dropout` says what the loss is without the noise that training adds, at the state's present weights.
    """
    last, elements = plan.last_step, {name: parameter.numel() for name, parameter in state.model.named_parameters()}
    lost = partial(rounds_away, state)
    return (
        StaleGradients(), NotZeroed(tuple(elements)), RepeatedBatches(plan.steps_per_epoch), NotOptimized(frozen),
        DeadLayer(), Unchanged(frozen, lost, last), RoundedAway(lost), UpdateRatio(elements),
        WeightsShrink(), ConstantPredictions(prior_loss), Plateau(last, prior_loss, without_dropout),
        *(() if reweighted else (RiseAboveBest(),)), Overfitting(),
        WaitsForRows(), ThroughputDrop(), MemoryGrowth(last, memory_limit_bytes), GpuIdle(), ReplicasApart(),
    )  # fmt: skip
