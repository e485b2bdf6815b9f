"""What a training by a script has told so far; the script sees it by its handle."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from trainworthy.lifecycle.engine.trainers.ended import WORDS, TrainingEndedError
from trainworthy.lifecycle.engine.trainers.gradients import Gradients, gradients_of
from trainworthy.lifecycle.engine.trainers.watched import (
    WatchedModel,
    WithoutGradient,
    hang_alarm,
    not_finite_alarm,
    spoiled,
    spoiled_parameters,
)
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.non_finite import finite
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.session import Session
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, START, Clock
from trainworthy.lifecycle.engine.training.watching.curve import Curve
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm

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

    def find(self, model: torch.nn.Module) -> WatchedModel | None:
        """The one over this model, if it was told before, or over its very parameters: a script may wrap it anew."""
        same = next((watched for watched in self.all if watched.state.model is model), None)
        if same is not None or not self.all:
            return same
        mine = [id(parameter) for parameter in model.parameters()]
        return next((watched for watched in self.all if mine == list(map(id, watched.state.model.parameters()))), None)

    def over(self, model: torch.nn.Module, step: int) -> WatchedModel | None:
        """The one over this model: a fresh one the first time, and where its parameters are others by now.

        None if there are MOST_MODELS others.
        """
        before, names = self.find(model), tuple(name for name, _ in model.named_parameters())
        if before is not None and before.watch.parameters == names and before.is_of(model):
            if self.newest is not None and self.newest is not before:
                # They are told by turns: what one learns moves the loss of another.
                for watched in self.all:
                    watched.watch.adversarial = True
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
        elif same := [state for state in self._held if state.get("parameters") == list(names)]:
            weights = made.fingerprints() if len(same) > 1 else []
            held = next((state for state in same if state.get("weights") == weights), same[0])
            self._hold([state for state in self._held if state is not held])
            made.load_state_dict(held)
        self.all.append(made)
        self.newest = made
        return made

    def look_back(self) -> Alarm | None:
        """The alarm that ends the training by a closer look at an update that is made by now."""
        return next((alarm for watched in self.all if (alarm := watched.look_back()) is not None), None)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Those of all models, also of those that are not told again, in the order of their updates."""
        alarms = (alarm for watched in self.all for alarm in watched.watch.alarms)
        return tuple(sorted((*self._held_alarms, *alarms), key=lambda alarm: alarm.step))

    @property
    def know_optimizers(self) -> bool:
        """True if updates of every model could be looked at closer."""
        return bool(self.all) and all(watched.knows_optimizer for watched in self.all)

    def state_dict(self) -> list[dict[str, Any]]:
        """What a checkpoint needs of each, as JSON."""
        return [*(watched.state_dict() for watched in self.all), *self._held]

    def load_state_dict(self, held: object) -> None:
        """Models are known again by the names of their parameters; of several with these, by their weights.

        Where the weights are others by then, equal ones go by their order. What is not as state_dict gives it, since
        another version wrote it, is left out: the monitors start anew.
        """
        states = held if isinstance(held, list) else [held]
        self._hold([state for state in states if isinstance(state, dict) and "json" in state])

    def _hold(self, held: Sequence[dict[str, Any]]) -> None:
        self._held = list(held)
        # Read once: all alarms are asked for at every update.
        self._held_alarms = tuple(Alarm(**alarm) for state in held for alarm in json.loads(state["json"])["alarms"])


KEPT = 32


class UpdateReport(NamedTuple):
    """What a script says of an update: its loss, None if that comes later, rows, and their `numbers` if it tells them.

    The learning rate is 0 where neither it nor an optimizer is told.
    """

    loss: float | None
    rows: int
    rate: float
    numbers: Callable[[], tuple[int, ...]] = tuple
    optimizers: Sequence[torch.optim.Optimizer] = ()


@dataclass
class Logbook:
    """`done` updates were told. `ignored`: the script went on although the session had ended."""

    session: Session
    recorder: Recorder
    done: int = 0
    resumed_from: int = 0
    prefix_sha256: str | None = None
    ignored: bool = False
    alarm: Alarm | None = None
    hangs: list[Alarm] = field(default_factory=list)
    models: WatchedModels = field(init=False)
    gradients: Gradients | None = None
    gradients_seen: bool = False
    curve: Curve = field(default_factory=Curve)
    heart: Heartbeat = field(init=False)
    # Of the newest updates, with what came between them.
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _told_at: float = field(default_factory=time.perf_counter)
    _scaled: bool = False
    _without: dict[int, WithoutGradient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        session = self.session
        self.heart = Heartbeat.of_script(Path(session.job.out))
        self.models = WatchedModels(session.job, session.plan, session.clock, self.recorder)

    def begin(self, state: Mapping[str, Any] | None = None) -> None:
        """The script goes on from a checkpoint's state, or from the start; once, before the first update."""
        if self.session.begun:
            return
        self.heart.start()
        if state is not None:
            self.done = self.resumed_from = int(state["done"])
            self.curve.load_state_dict(state["curve"])
            self.prefix_sha256 = state["prefix_sha256"]
            self.models.load_state_dict(state.get("monitors"))
            self.hangs = [Alarm(**alarm) for alarm in state.get("hangs", ())]
        self.session.clock.lap(START)
        self.session.clock.resume(self.done)
        self.recorder.before_update()
        self.session.begin(self.done, self.curve.points)
        if self.done >= self.session.plan.last_step:
            self.session.ended = "planned"

    def look(self, model: torch.nn.Module, report: UpdateReport, scaled: bool) -> None:
        """Look at the gradients before the update. Raises TrainingEndedError where no update may be made."""
        self._go_on()
        self.heart.called()
        self.look_back()
        self.gradients, self._scaled = gradients_of(model), scaled
        if self.gradients is None:
            return
        self.gradients_seen, norm = True, self.gradients.total
        if finite(norm):
            if (watched := self.models.over(model, self.done)) is not None:
                watched.weigh(self.done, report.optimizers)
        elif not scaled:
            self._end_by_not_finite(model, report, norm)

    def hear_norm(self, report: UpdateReport, norm: float, scaled: bool) -> None:
        """The norm of all gradients, of a model that is not told. Raises TrainingEndedError if it is not finite."""
        self._go_on()
        self.gradients, self._scaled = Gradients(norm, []), scaled
        if not finite(norm) and not scaled:
            self._end_by_not_finite(None, report, norm)

    def look_back(self) -> None:
        """Judge a closer look whose update is made by now. Raises TrainingEndedError."""
        if (alarm := self.models.look_back()) is not None:
            self._end_by(alarm)

    def tell(self, model: torch.nn.Module | None, report: UpdateReport) -> None:
        """One update more. Raises TrainingEndedError where no update may be made."""
        assert report.loss is not None
        self._go_on()
        self.session.clock.lap(COMPUTE)
        if not finite(report.loss):
            self._end_by_not_finite(model, report, None)
        self._judge(model, self._record(report))
        self.done, self.gradients = self.done + 1, None
        self.heart.next(self.done)
        now = time.perf_counter()
        self.seconds.append(now - self._told_at)
        self._told_at = now
        closed = self.curve.add_mean(self.done, report.rows, report.loss, report.rate, self.session.plan.window)
        self.session.updated(self.done, f"loss {report.loss:.4f}", [closed] if closed else ())
        if model is not None:
            self.prefix_sha256 = self.session.prefix(self.done, model.state_dict) or self.prefix_sha256
        self.session.clock.step_done(self.done)
        if not self.session.asked_to_end():
            self.session.ends_after(self.done)
        self.recorder.before_update()
        if model is not None and (watched := self.models.find(model)) is not None:
            watched.look_at_next()
        self._note_hangs()
        self.session.write(self.alarms)

    def refuse_spoiled(self, *given: object) -> None:
        """Raises TrainingEndedError, with its alarm, if a weight of a given module, or of a model told, is not finite.

        Called before anything is kept of them. Updates up to the newest one that was told are made.
        """
        models = [module for module in given if isinstance(module, torch.nn.Module)]
        for model in (*models, *(watched.state.model for watched in self.models.all)):
            if names := spoiled_parameters(model):
                self._end_by_spoiled(model, names, max(0, self.done - 1))

    def must_end(self) -> bool:
        """True if the script has to end its loop; asks anew whether it was asked to."""
        return self.session.asked_to_end() or self.session.ended is not None

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs of it, as JSON."""
        self._note_hangs()
        return {
            "done": self.done, "curve": self.curve.state_dict(), "prefix_sha256": self.prefix_sha256,
            "monitors": self.models.state_dict(), "hangs": [alarm.model_dump(mode="json") for alarm in self.hangs],
        }  # fmt: skip

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """All that there were, the one that ended the training too."""
        alarms = tuple(sorted((*self.models.alarms, *self.hangs), key=lambda alarm: alarm.step))
        return alarms if self.alarm in (None, *alarms) else (*alarms, self.alarm)

    def close(self) -> None:
        """End the progress bar, the heartbeat and closer looks at updates that never came, and write what waits."""
        self.heart.close()
        for watched in self.models.all:
            watched.leave()
        if self.heart.hangs:
            # Since the last update.
            self._note_hangs()
            self.session.write(self.alarms)
        self.session.close()

    def _go_on(self) -> None:
        ended = self.session.ended
        if ended is not None:
            self.ignored = self.ignored or ended != "alarm"
            raise TrainingEndedError(f"the training has ended: {WORDS[ended]}")
        self.begin()

    def _record(self, report: UpdateReport) -> Signals:
        """The signals of an update, right before or after it is made. NaN is what was not told, or not seen."""
        self.recorder.batch = lambda step: report.numbers()
        loss = math.nan if report.loss is None else report.loss
        norm, norms = (math.nan, []) if self.gradients is None else self.gradients
        # No row's own loss is known: as if all had the mean.
        return self.recorder.add(
            self.session.clock, self.done, loss, loss * loss, report.rows, report.rate, norm, norms
        )

    def _judge(self, model: torch.nn.Module | None, signals: Signals) -> None:
        """Ask the monitors, where the update's gradients were seen; a scaler leaves out those that are not finite."""
        if model is not None and not (self.gradients is not None and signals.grad_norm != 0):
            self._judge_without(model, signals.step)
        if model is None or self.gradients is None or not finite(signals.grad_norm):
            return
        if signals.grad_norm and (without := self._without.get(id(model))):
            without.has_gradient()
        watched = self.models.find(model)
        alarm = None if watched is None else watched.judge(signals)
        if alarm is not None:
            self._end_by(alarm)

    def _judge_without(self, model: torch.nn.Module, step: int) -> None:
        """An update at which no parameter has a gradient. A scaler leaves out updates without a word."""
        if self._scaled or (id(model) not in self._without and len(self._without) >= MOST_MODELS):
            return
        finding = self._without.setdefault(id(model), WithoutGradient()).after_update(model, step)
        watched = None if finding is None else self.models.over(model, step)
        if finding is None or watched is None:
            return
        watched.state.step = step
        if (alarm := watched.watch.act_on(watched.state, finding)) is not None:
            self._end_by(alarm)

    def _recorded(self, alarm: Alarm, watched: WatchedModel | None) -> Alarm:
        """The alarm with its rows and its incident."""
        alarm = alarm.model_copy(update={"row_keys": self.recorder.rows(alarm.step).keys})
        if watched is None:
            return self.recorder.record(alarm)
        return self.recorder.record(alarm, watched.watch.samples, watched.watch.parameters)

    def _note_hangs(self) -> None:
        """What the heartbeat has found by now, whether or not a model was told."""
        while self.heart.hangs:
            alarm = hang_alarm(self.heart.hangs.popleft(), self.alarms)
            self.hangs.append(self._recorded(alarm, self.models.newest))

    def _end_by_not_finite(self, model: torch.nn.Module | None, report: UpdateReport, norm: float | None) -> NoReturn:
        self._record(report)
        # With such weights every loss and gradient would be: the update before this one made them.
        if model is not None and (names := spoiled_parameters(model)):
            self._end_by_spoiled(model, names, self.done)
        bad_inputs = self.recorder.rows(self.done).not_finite
        alarm = not_finite_alarm(self.done, report.loss, norm, self.alarms, bad_inputs)
        self._end_by(self._recorded(alarm, self.models.newest))

    def _end_by_spoiled(self, model: torch.nn.Module, names: Sequence[str], step: int) -> NoReturn:
        """Weights are not finite, as was seen at this update."""
        watched = self.models.find(model)
        if watched is None:
            self._end_by(self._recorded(spoiled(step, 0, names), None))
        watched.state.step = step
        self._end_by(watched.watch.weights_are_bad(watched.state))

    def _end_by(self, alarm: Alarm) -> NoReturn:
        self.begin()
        self.session.ended, self.alarm = "alarm", alarm
        self.session.write(self.alarms)
        raise TrainingEndedError(f"{alarm.symptom}: {alarm.evidence}")
