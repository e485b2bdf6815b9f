"""Trainings of the four hosts, shortened, with a watch beside them and a fault from one update on."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from benchmarks.networks import HOSTS
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.training import MonitorsSpec

# Updates of a training, and the first one with the fault in it.
STEPS, ONSET = 130, 70
Fault = Callable[[Setup], Setup]


def watched(
    setup: Setup, steps: int = STEPS, after: Callable[[TrainState], object] = lambda state: None, **actions: Any
) -> tuple[Watch, TrainState]:
    """Train for so many updates at most; `after` each update something may be done to the state."""
    subject = setup.subject()
    torch.manual_seed(setup.seed)
    state = subject.state()
    plan = subject.plan.model_copy(update={"last_step": steps, "horizon_steps": steps})
    watch = Watch(state.model, MonitorsSpec(**actions), (), steps)

    def after_step(state: TrainState, update: object) -> bool:
        after(state)
        return False

    train(state, subject.training, plan, subject.recipe, after_step, watch)
    return watch, state


def host(name: str, seed: int = 0) -> Setup:
    """A host at a constant rate, for a training of many short passes."""
    return replace(HOSTS[name](seed), decay="constant", warmup=0.0, epochs=40)


def alarms(watch: Watch, severity: str = "critical") -> list[Alarm]:
    return [alarm for alarm in watch.alarms if alarm.severity == severity]


def from_onset(change: Callable[[torch.Tensor], torch.Tensor], end: int = 10**9) -> Fault:
    """The network's outputs are changed from ONSET on."""

    def planted(setup: Setup) -> Setup:
        calls, loss = count(), setup.loss_fn

        def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return loss(change(outputs) if ONSET <= next(calls) < end else outputs, targets)

        return replace(setup, loss_fn=losses)

    return planted


def rate_times(factor: float) -> Fault:
    """The rate jumps at ONSET."""
    return lambda setup: replace(
        setup, schedule=lambda step, steps: setup.learning_rate * (factor if step >= ONSET else 1.0)
    )
