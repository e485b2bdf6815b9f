"""The monitors of a training by a script: by what it tells of each update, and a closer look if its optimizer is told.

A script makes its own updates, so that an alarm can be told or end the training, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lifecycle.jobs import TrainJob
from lifecycle.records import Alarm
from lifecycle.trainers.gradients import Gradients
from lifecycle.trainers.look import InNoOptimizer, ScriptLook, ScriptLooks
from lifecycle.training.monitors.all import all_monitors
from lifecycle.training.monitors.feeding import RepeatedBatches
from lifecycle.training.monitors.layers import NotOptimized
from lifecycle.training.monitors.monitor import Monitor
from lifecycle.training.monitors.non_finite import not_finite_alarm
from lifecycle.training.monitors.signals import SAMPLE_EVERY
from lifecycle.training.monitors.watch import Watch
from lifecycle.training.plan import Plan
from lifecycle.training.state import TrainState, Update
from lifecycle.training.watching.clock import Clock

if TYPE_CHECKING:
    import torch

ENDED = "the training script was ended"


class ScriptWatch(Watch):
    """The watch over one model; made at the first update that tells it."""

    def __init__(
        self,
        model: torch.nn.Module,
        job: TrainJob,
        plan: Plan,
        clock: Clock,
        step: int,
        on_alarm: Callable[[Watch, TrainState, Alarm], Alarm],
    ) -> None:
        self.state = TrainState(model, (), step=step, clock=clock)
        spec, monitors = job.training.monitors, _monitors(self.state, plan, job.frozen)
        super().__init__(model, spec, monitors, plan.last_step, on_alarm=on_alarm)
        self.parameters = tuple(name for name, _ in model.named_parameters())
        self._looks = ScriptLooks(model)
        self._first_look = step + SAMPLE_EVERY
        self._update: Update | None = None

    @property
    def knows_optimizer(self) -> bool:
        """True if updates could be looked at closer."""
        return bool(self.state.optimizers)

    def before_told(self) -> Alarm | None:
        """The alarm that ends the training by the closer look at the update before, which is made by now."""
        look = self._look
        if not isinstance(look, ScriptLook) or not look.weighed or self._update is None:
            return None
        self.state.step = look.step
        return self.after_update(self.state, self._update)

    def weigh(self, step: int, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """The update of `step` comes next, by these optimizers; those that were told before may make others."""
        self.state.optimizers = tuple(dict.fromkeys([*self.state.optimizers, *optimizers]))
        if isinstance(self._look, ScriptLook):
            if self._look.step == step and optimizers:
                self._look.weigh()
            else:
                # Of its update nothing was told.
                self._look.leave()
                self._look = None

    def see(self, step: int, loss: float, gradients: Gradients, rows: int, rate: float) -> Alarm | None:
        """The alarm that ends the training at this update, if one does. Loss and gradients are finite."""
        self.state.step, self._rate = step, rate
        # No row's own loss is known: as if all had the mean.
        self._update = Update(loss, loss * loss, gradients.total, gradients.norms)
        self.may_apply(self.state, self._update, rows)
        return self.ended

    def look_at_next(self, step: int) -> None:
        """Look closer at the update of `step`, the next one, if it is its turn."""
        if step % SAMPLE_EVERY == 0 and step >= self._first_look and self.state.optimizers:
            self.state.step = step
            self._look = self._looks.begin(self.state)


def _monitors(state: TrainState, plan: Plan, frozen: tuple[str, ...]) -> tuple[Monitor, ...]:
    """Those that go by what a script tells: the order of its rows and all of its optimizers are its own."""
    ours = (RepeatedBatches, NotOptimized)
    return (*(one for one in all_monitors(state, plan, frozen=frozen) if not isinstance(one, ours)), InNoOptimizer())


def not_finite(step: int, loss: float | None, norm: float | None) -> Alarm:
    """The alarm for an update that was told with a loss, or of whose gradient a norm was seen, that is not finite."""
    found = {"loss": loss, "gradient norm": norm}
    told = ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
    alarm = not_finite_alarm(step, 0.0 if loss is None else loss, 0.0 if norm is None else norm)
    return alarm.model_copy(update={"evidence": f"step {step}: {told}; {ENDED}"})
