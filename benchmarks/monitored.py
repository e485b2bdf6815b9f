"""A training of a Subject with its monitors: what they told, and the reserve's curve beside it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.game import is_game
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.monitor import Monitor
from trainworthy.lifecycle.engine.training.monitors.prior import prior_loss
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.monitors.row_keys import NamedRows
from trainworthy.lifecycle.engine.training.monitors.true_gradient import look_at_gradient
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.monitors.without_dropout import WithoutDropout
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.state import TrainState, Update
from trainworthy.lifecycle.engine.training.watching.clock import VALIDATION
from trainworthy.lifecycle.engine.training.watching.progressive import Progressive
from trainworthy.lifecycle.memory_limit import memory_limit_bytes
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.training import MonitorsSpec

# Called before an update, which a planted fault of that update may change.
Before = Callable[[TrainState, int], None]


class Shown(Base):
    """A monitor that finds nothing and keeps what it is shown."""

    name = "shown"

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[Signals] = []
        self.samples: list[Sample] = []

    def after_backward(self, signals: Signals) -> None:
        self.signals.append(signals)

    def after_sample(self, sample: Sample, update: Signals) -> None:
        self.samples.append(sample)


@dataclass
class Seen:
    """All that a training showed to its monitors, and what they told."""

    steps: int
    seconds: float
    signals: list[Signals]
    samples: list[Sample]
    alarms: list[Alarm] = field(default_factory=list)

    def told(self, monitors: Sequence[str]) -> Alarm | None:
        """The first alarm of one of these monitors."""
        return min((one for one in self.alarms if one.monitor in monitors), key=lambda one: one.step, default=None)


class _Before(Watch):
    """A watch that plants a fault before an update is made."""

    plant: Before | None = None

    def before_update(self, state: TrainState) -> bool:
        if self.plant is not None:
            self.plant(state, state.step)
        return super().before_update(state)


def monitored(
    subject: Subject,
    monitors: Sequence[Monitor] | None = None,
    before: Before | None = None,
    until: Sequence[str] = (),
    hang_seconds: float | None = None,
) -> Seen:
    """Train for the whole plan, until what is not finite ends it, or until a monitor of `until` has told something.

    With `hang_seconds` there is a heartbeat, and what takes longer hangs.
    """
    state, shown = subject.state(), Shown()
    if monitors is None:
        prior = prior_loss(state.model, subject.training, subject.recipe, subject.plan.batch_size)
        without = WithoutDropout(state.model, subject.training, subject.recipe, subject.plan.batch_size)
        limit = memory_limit_bytes()
        monitors = all_monitors(
            state, subject.plan, prior_loss=prior, memory_limit_bytes=limit, without_dropout=without
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        heartbeat = None
        if hang_seconds is not None:
            heartbeat = Heartbeat(Path(folder), fewest_seconds=hang_seconds, wake_seconds=0.1)
        watch = _Before(
            state.model, MonitorsSpec(), [*monitors, shown], subject.plan.last_step, _recorder(subject),
            game=is_game(state.model, subject.training, subject.recipe), heartbeat=heartbeat,
            gradient=partial(look_at_gradient, state.model, subject.training, subject.recipe),
        )  # fmt: skip
        watch.plant = before
        progressive = Progressive(subject.plan, subject.training, subject.recipe, 0, subject.held_out)
        after = _after(progressive, watch, until)
        seed_everything(subject.recipe.seed)
        started = time.perf_counter()
        with watch.heart():
            train(state, subject.training, subject.plan, subject.recipe, after, watch)
        seconds = time.perf_counter() - started
    return Seen(state.step, seconds, shown.signals, shown.samples, watch.alarms)


def _recorder(subject: Subject) -> Recorder:
    """One that names rows as monitors/row_keys.py does, where they have no keys."""

    def name(numbers: tuple[int, ...], losses: torch.Tensor | None) -> NamedRows:
        rows = subject.training.take(torch.tensor(numbers))
        return NamedRows((), not all(bool(one.isfinite().all()) for one in rows.inputs.values()))

    return Recorder(
        batch=lambda step: tuple(subject.plan.batch(min(step, subject.plan.last_step - 1)).tolist()), name=name
    )


def _after(progressive: Progressive, watch: Watch, until: Sequence[str]) -> Callable[[TrainState, Update], bool]:
    """What the loop does after an update with the curve and the reserve."""
    windows = [0]

    def after(state: TrainState, update: Update) -> bool:
        points = state.curve.points
        closed = points[-1] if len(points) > windows[0] else None
        beside = progressive.after_step(state, closed)
        if closed is not None:
            windows[0] = len(points)
            watch.after_points(state, (closed, *beside))
        # As the loop does, or it would count as waiting for rows.
        state.clock.lap(VALIDATION)
        return any(one.monitor in until for one in watch.alarms)

    return after
