"""The models of a training by a script, each with a watch of its own, since some train several by turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from trainworthy.lifecycle.engine.trainers.watched import WatchedModel
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.records import Alarm

# A script that makes a model anew at each update would fill the memory with what is kept of each.
MOST_MODELS = 8


@dataclass
class WatchedModels:
    """`newest` is the one that was told last. `unwatched`: there were more than MOST_MODELS."""

    job: TrainJob
    plan: Plan
    clock: Clock
    recorder: Recorder
    all: list[WatchedModel] = field(default_factory=list)
    newest: WatchedModel | None = None
    unwatched: bool = False
    # What a checkpoint says of models that were not told again yet.
    _held: list[dict[str, Any]] = field(default_factory=list)
    _held_alarms: tuple[Alarm, ...] = ()

    def found(self, model: torch.nn.Module) -> WatchedModel | None:
        """The one over this model, if it was told before, or over its very parameters: a script may wrap it anew."""
        same = next((one for one in self.all if one.state.model is model), None)
        if same is not None or not self.all:
            return same
        mine = [id(parameter) for parameter in model.parameters()]
        return next((one for one in self.all if mine == list(map(id, one.state.model.parameters()))), None)

    def over(self, model: torch.nn.Module, step: int) -> WatchedModel | None:
        """The one over this model: a fresh one the first time, and where its parameters are others by now.

        None if there are MOST_MODELS others.
        """
        before, names = self.found(model), tuple(name for name, _ in model.named_parameters())
        if before is not None and before.watch.parameters == names and before.is_of(model):
            if self.newest is not None and self.newest is not before:
                # They are told by turns: what one learns moves the loss of another.
                for one in self.all:
                    one.watch.become_adversarial()
            self.newest = before
            return before
        if before is None and len(self.all) >= MOST_MODELS:
            self.unwatched, self.newest = True, None
            return None
        made = WatchedModel(model, self.job, self.plan, self.clock, step, self.recorder)
        if before is not None:
            made.go_on_from(before)
            before.leave()
            self.all.remove(before)
        elif same := [one for one in self._held if one.get("parameters") == list(names)]:
            weights = made.fingerprints() if len(same) > 1 else []
            held = next((one for one in same if one.get("weights") == weights), same[0])
            self._hold([one for one in self._held if one is not held])
            made.load_state_dict(held)
        self.all.append(made)
        self.newest = made
        return made

    def look_back(self) -> Alarm | None:
        """The alarm that ends the training by a closer look at an update that is made by now."""
        return next((alarm for one in self.all if (alarm := one.look_back()) is not None), None)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Those of all models, also of those that are not told again, in the order of their updates."""
        told = (alarm for one in self.all for alarm in one.watch.alarms)
        return tuple(sorted((*self._held_alarms, *told), key=lambda alarm: alarm.step))

    @property
    def know_optimizers(self) -> bool:
        """True if updates of every model could be looked at closer."""
        return bool(self.all) and all(one.knows_optimizer for one in self.all)

    def state_dict(self) -> list[dict[str, Any]]:
        """What a checkpoint needs of each, as JSON."""
        return [*(one.state_dict() for one in self.all), *self._held]

    def load_state_dict(self, held: object) -> None:
        """Models are known again by the names of their parameters; of several with these, by their weights.

        Where the weights are others by then, equal ones go by their order. What is not as state_dict gives it, since
        another version wrote it, is left out: the monitors start anew.
        """
        found = held if isinstance(held, list) else [held]
        self._hold([one for one in found if isinstance(one, dict) and "json" in one])

    def _hold(self, held: Sequence[dict[str, Any]]) -> None:
        self._held = list(held)
        # Read once: all alarms are asked for at every update.
        self._held_alarms = tuple(Alarm(**alarm) for one in held for alarm in json.loads(one["json"])["alarms"])
