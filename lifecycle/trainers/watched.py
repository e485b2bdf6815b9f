"""The monitors of a training by a script: by what it tells of each update, without a closer look at any.

A script makes its own updates, so that an alarm can be told or end the training, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lifecycle.records import Alarm
from lifecycle.trainers.gradients import Gradients
from lifecycle.training.loop import Recipe, TrainState, Update
from lifecycle.training.monitors.all import all_monitors
from lifecycle.training.monitors.non_finite import not_finite_alarm
from lifecycle.training.monitors.watch import Watch
from lifecycle.training.watching.clock import Clock
from lifecycle.training_spec import MonitorsSpec

if TYPE_CHECKING:
    import torch

RowKeys = tuple[dict[str, Any], ...]


class ScriptWatch:
    """The watch over one model; made at the first update that tells it."""

    def __init__(self, model: torch.nn.Module, spec: MonitorsSpec, planned_steps: int, clock: Clock) -> None:
        self._state = TrainState(model, (), clock=clock)
        self._keys: Callable[[], RowKeys] = tuple
        self._watch = Watch(
            model, spec, all_monitors(self._state), planned_steps, row_keys=lambda state: self._keys()
        )  # fmt: skip

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return tuple(self._watch.alarms)

    def see(
        self, step: int, loss: float, gradients: Gradients, rows: int, rate: float, keys: Callable[[], RowKeys]
    ) -> Alarm | None:
        """The alarm that ends the training at this update, if one does. Loss and gradients are finite."""
        self._state.step, self._keys = step, keys
        self._watch.rate(self._state, _at(rate))
        # No row's own loss is known: as if all had the mean.
        self._watch.may_apply(self._state, Update(loss, loss * loss, gradients.total, gradients.norms), rows)
        return self._watch.ended

    def state_dict(self) -> dict[str, Any]:
        return self._watch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._watch.load_state_dict(state)


def not_finite(step: int, loss: float | None, norm: float | None, keys: Callable[[], RowKeys]) -> Alarm:
    """The alarm for an update that was told with a loss, or of whose gradient a norm was seen, that is not finite."""
    found = {"loss": loss, "gradient norm": norm}
    told = ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
    alarm = not_finite_alarm(step, 0.0 if loss is None else loss, 0.0 if norm is None else norm)
    evidence = f"step {step}: {told}; the training script was ended"
    return alarm.model_copy(update={"evidence": evidence, "row_keys": keys()})


def _at(rate: float) -> Recipe:
    """All that the watch asks of a recipe."""

    def loss_fn(outputs: object, targets: object) -> Any:
        raise AssertionError("a script has its own loss")

    return Recipe(loss_fn=loss_fn, learning_rate=lambda step: rate, clip_norm=float("inf"))
