"""What a training by a script has told so far, and whether it has to end; the script sees it by its session.

Progress, metrics, clock, deadline and curve are those of a training by our own loop.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from trainworthy.lifecycle.engine.trainers.ended import WORDS, TrainingEndedError, Why
from trainworthy.lifecycle.engine.trainers.gradients import Gradients, gradients_of
from trainworthy.lifecycle.engine.trainers.watched import (
    WatchedModel,
    hang_alarm,
    spoiled,
    spoiled_parameters,
    told_not_finite,
)
from trainworthy.lifecycle.engine.trainers.watches import WatchedModels
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.non_finite import finite
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.step_hooks import PREFIX_STEPS
from trainworthy.lifecycle.engine.training.techniques.deadline import Deadline
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, START, Clock
from trainworthy.lifecycle.engine.training.watching.curve import Curve
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.records import Alarm
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsFile

KEPT = 32


class Told(NamedTuple):
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
    """`done` updates were told. `ended` says why the script has to end; `ignored` that it went on all the same."""

    job: TrainJob
    plan: Plan
    clock: Clock
    deadline: Deadline
    recorder: Recorder
    asked: Callable[[], bool]
    forward: Callable[[str], None] | None = None
    done: int = 0
    resumed_from: int = 0
    prefix_sha256: str | None = None
    ended: Why | None = None
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
    # Alarms that are in metrics.jsonl, by step and monitor.
    _written: set[tuple[int, str]] = field(default_factory=set)
    _progress: Progress | None = None
    _metrics: MetricsFile | None = None

    def __post_init__(self) -> None:
        self.heart = Heartbeat.of_script(Path(self.job.out))
        self.models = WatchedModels(self.job, self.plan, self.clock, self.recorder)

    def begin(self, state: Mapping[str, Any] | None = None) -> None:
        """The script goes on from a checkpoint's state, or from the start; once, before the first update."""
        if self._progress is not None:
            return
        self.heart.start()
        if state is not None:
            self.done = self.resumed_from = int(state["done"])
            self.curve.load_state_dict(state["curve"])
            self.prefix_sha256 = state["prefix_sha256"]
            self.models.load_state_dict(state.get("monitors"))
            self.hangs = [Alarm(**alarm) for alarm in state.get("hangs", ())]
        self.clock.lap(START)
        self.clock.resume(self.done)
        self.recorder.before_update()
        self._progress = Progress(f"{self.job.stage}: step", self.plan.last_step, self.done, self.forward)
        self._metrics = MetricsFile(Path(self.job.out) / FILE_NAME)
        self._metrics.begin(self.done, self.curve.points)
        if self.done >= self.plan.last_step:
            self.ended = "planned"

    def look(self, model: torch.nn.Module, told: Told, scaled: bool) -> None:
        """Look at the gradients before the update. Raises TrainingEndedError where no update may be made."""
        self._go_on()
        self.heart.called()
        self.look_back()
        self.gradients = gradients_of(model)
        if self.gradients is None:
            return
        self.gradients_seen, norm = True, self.gradients.total
        if finite(norm):
            if (watched := self.models.over(model, self.done)) is not None:
                watched.weigh(self.done, told.optimizers)
        elif not scaled:
            self._end_by_not_finite(model, told, norm)

    def look_back(self) -> None:
        """Judge a closer look whose update is made by now. Raises TrainingEndedError."""
        if (alarm := self.models.look_back()) is not None:
            self._end_by(alarm)

    def tell(self, model: torch.nn.Module | None, told: Told) -> None:
        """One update more. Raises TrainingEndedError where no update may be made."""
        assert told.loss is not None
        self._go_on()
        self.clock.lap(COMPUTE)
        if not finite(told.loss):
            self._end_by_not_finite(model, told, None)
        self._judge(model, self._record(told))
        self.done, self.gradients = self.done + 1, None
        self.heart.next(self.done)
        now = time.perf_counter()
        self.seconds.append(now - self._told_at)
        self._told_at = now
        self._show(told.loss, told)
        if model is not None and self.done == min(PREFIX_STEPS, self.plan.horizon_steps):
            self.prefix_sha256 = parameters_sha256(model)
        self.clock.step_done(self.done)
        self._end_after_update()
        self.recorder.before_update()
        if model is not None and (watched := self.models.found(model)) is not None:
            watched.look_at_next()
        self._note_hangs()
        self._write_alarms()

    def refuse_spoiled(self, *given: object) -> None:
        """Raises TrainingEndedError, with its alarm, if a weight of a given module, or of a model told, is not finite.

        Called before anything is kept of them. Updates up to the newest one that was told are made.
        """
        models = [one for one in given if isinstance(one, torch.nn.Module)]
        for model in (*models, *(watched.state.model for watched in self.models.all)):
            if names := spoiled_parameters(model):
                self._end_by_spoiled(model, names, max(0, self.done - 1))

    def must_end(self) -> bool:
        """True if the script has to end its loop; asks anew whether it was asked to."""
        if self.ended is None and self.asked():
            self.ended = "asked"
        return self.ended is not None

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
        found = tuple(sorted((*self.models.alarms, *self.hangs), key=lambda alarm: alarm.step))
        return found if self.alarm in (None, *found) else (*found, self.alarm)

    def close(self) -> None:
        """End the progress bar, the heartbeat and closer looks at updates that never came, and write what waits."""
        self.heart.close()
        for watched in self.models.all:
            watched.leave()
        if self.heart.hangs:
            # Since the last update.
            self._note_hangs()
            self._write_alarms()
        for each in (self._progress, self._metrics):
            if each is not None:
                each.close()

    def _go_on(self) -> None:
        if self.ended is not None:
            self.ignored = self.ignored or self.ended != "alarm"
            raise TrainingEndedError(f"the training has ended: {WORDS[self.ended]}")
        self.begin()

    def _record(self, told: Told) -> Signals:
        """The signals of an update, right before or after it is made. NaN is what was not told, or not seen."""
        self.recorder.batch = lambda step: told.numbers()
        loss = math.nan if told.loss is None else told.loss
        norm, norms = (math.nan, []) if self.gradients is None else self.gradients
        # No row's own loss is known: as if all had the mean.
        return self.recorder.add(self.clock, self.done, loss, loss * loss, told.rows, told.rate, norm, norms)

    def _judge(self, model: torch.nn.Module | None, seen: Signals) -> None:
        """Ask the monitors, where the update's gradients were seen; a scaler leaves out those that are not finite."""
        if model is None or self.gradients is None or not finite(seen.grad_norm):
            return
        watched = self.models.found(model)
        alarm = None if watched is None else watched.judge(seen)
        if alarm is not None:
            self._end_by(alarm)

    def _kept(self, alarm: Alarm, watched: WatchedModel | None) -> Alarm:
        """The alarm with its rows and its incident."""
        alarm = alarm.model_copy(update={"row_keys": self.recorder.rows(alarm.step).keys})
        if watched is None:
            return self.recorder.record(alarm)
        return self.recorder.record(alarm, watched.watch.samples, watched.watch.parameters)

    def _note_hangs(self) -> None:
        """What the heartbeat has found by now, whether or not a model was told."""
        while self.heart.hangs:
            alarm = hang_alarm(self.heart.hangs.popleft(), self.alarms)
            self.hangs.append(self._kept(alarm, self.models.newest))

    def _write_alarms(self) -> None:
        """Those that are new, for who reads along."""
        assert self._metrics is not None
        new = [alarm for alarm in self.alarms if (alarm.step, alarm.monitor) not in self._written]
        if new:
            self._metrics.write(new)
            self._written.update((alarm.step, alarm.monitor) for alarm in new)

    def _show(self, loss: float, told: Told) -> None:
        assert self._progress is not None
        assert self._metrics is not None
        self._progress.advance(f"loss {loss:.4f}")
        closed = self.curve.add_mean(self.done, told.rows, loss, told.rate, self.plan.window)
        if closed is not None:
            self._metrics.write([closed])

    def _end_after_update(self) -> None:
        if self.asked():
            self.ended = "asked"
        elif self.done == self.job.stop_after_steps:
            self.ended = "rerun"
        elif self.done >= self.plan.last_step:
            self.ended = "planned"
        elif self.deadline.after_update():
            self.ended = "budget"

    def _end_by_not_finite(self, model: torch.nn.Module | None, told: Told, norm: float | None) -> NoReturn:
        self._record(told)
        # With such weights every loss and gradient would be: the update before this one made them.
        if model is not None and (names := spoiled_parameters(model)):
            self._end_by_spoiled(model, names, self.done)
        bad_inputs = self.recorder.rows(self.done).not_finite
        alarm = told_not_finite(self.done, told.loss, norm, self.alarms, bad_inputs)
        self._end_by(self._kept(alarm, self.models.newest))

    def _end_by_spoiled(self, model: torch.nn.Module, names: Sequence[str], step: int) -> NoReturn:
        """Weights are not finite, as was seen at this update."""
        watched = self.models.found(model)
        if watched is None:
            self._end_by(self._kept(spoiled(step, 0, names), None))
        watched.state.step = step
        self._end_by(watched.watch.weights_are_bad(watched.state))

    def _end_by(self, alarm: Alarm) -> NoReturn:
        self.ended, self.alarm = "alarm", alarm
        self.begin()
        self._write_alarms()
        raise TrainingEndedError(f"{alarm.symptom}: {alarm.evidence}")
