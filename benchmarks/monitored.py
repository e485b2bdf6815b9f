"""A training of a Subject with its monitors: what they told, and the reserve's curve beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from lifecycle.preflight.start.constant import constant_losses
from lifecycle.preflight.subject import Subject, spread_rows
from lifecycle.records import Alarm
from lifecycle.training.loop import TrainState, Update, train
from lifecycle.training.monitors.all import all_monitors
from lifecycle.training.monitors.diagnosis import Cause, Context, diagnose
from lifecycle.training.monitors.monitor import Finding, Monitor
from lifecycle.training.monitors.signals import Sample, Signals
from lifecycle.training.monitors.updates import update_ratio
from lifecycle.training.monitors.watch import Watch
from lifecycle.training.watching.clock import VALIDATION
from lifecycle.training.watching.progressive import Progressive
from lifecycle.training_spec import MonitorsSpec

# Called before an update, which a planted fault of that update may change.
Before = Callable[[TrainState, int], None]


class Recorder:
    """A monitor that finds nothing and keeps what it is shown."""

    name = "recorder"

    def __init__(self) -> None:
        self.signals: list[Signals] = []
        self.samples: list[Sample] = []

    def after_backward(self, seen: Signals) -> None:
        self.signals.append(seen)

    def after_sample(self, seen: Sample) -> None:
        self.samples.append(seen)

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Nothing."""


@dataclass
class Seen:
    """All that a training showed to its monitors, and what they found."""

    steps: int
    seconds: float
    signals: list[Signals]
    samples: list[Sample]
    findings: list[Finding] = field(default_factory=list)

    def causes(self, at: int, precision: str) -> tuple[Cause, ...]:
        """What the diagnosis says once an update is made, from all that was told until then."""
        rates = [one.learning_rate for one in self.signals if one.step <= at]
        sampled = [one for one in self.samples if one.step <= at]
        ratios = [update_ratio(one) for one in sampled]
        context = Context(
            rates[-1] if rates else 0.0, max(rates, default=0.0), precision, update_ratio=ratios[-1] if ratios else None
        )
        return diagnose([one for one in self.findings if one.step <= at], context)


class _Before(Watch):
    """A watch that plants a fault before an update is made."""

    plant: Before | None = None

    def before_update(self, state: TrainState) -> bool:
        if self.plant is not None:
            self.plant(state, state.step)
        return super().before_update(state)


def monitored(subject: Subject, monitors: Sequence[Monitor] | None = None, before: Before | None = None) -> Seen:
    """Train for the whole plan, or until what is not finite ends it. All else is told and left alone."""
    state, recorder = subject.state(), Recorder()
    if monitors is None:
        monitors = all_monitors(state, subject.plan, frozen=subject.claims.frozen, prior_loss=prior_loss(subject))
    watch = _Before(state.model, MonitorsSpec(), [*monitors, recorder], subject.plan.last_step)
    watch.plant = before
    progressive = Progressive(subject.plan, subject.training, subject.recipe, 0, subject.held_out)
    after = _after(progressive, watch)
    torch.manual_seed(subject.recipe.seed)
    started = time.perf_counter()
    train(state, subject.training, subject.plan, subject.recipe, after, watch)
    seconds = time.perf_counter() - started
    return Seen(state.step, seconds, recorder.signals, recorder.samples, [_finding(one) for one in watch.alarms])


def _after(progressive: Progressive, watch: Watch) -> Callable[[TrainState, Update], bool]:
    """What a flight does after an update with the curve and the reserve."""
    windows = [0]

    def after(state: TrainState, update: Update) -> bool:
        points = state.curve.points
        closed = points[-1] if len(points) > windows[0] else None
        beside = progressive.after_step(state, closed)
        if closed is not None:
            windows[0] = len(points)
            watch.after_points(state, (closed, *beside))
        # As a flight does, or it would count as waiting for rows.
        state.clock.lap(VALIDATION)
        return False

    return after


def _finding(alarm: Alarm) -> Finding:
    return Finding(
        alarm.monitor, alarm.severity, alarm.step, alarm.onset, alarm.symptom, alarm.evidence, alarm.where
    )  # fmt: skip


def prior_loss(subject: Subject) -> float | None:
    """Loss on training rows of the best answer that looks at no input; None where the loss has none.

    None of weighted rows, too, since the losses that are shown are unweighted; and where the outputs hold the targets.
    """
    if subject.training.weights is not None or subject.claims.labels == "unused" or subject.claims.rows == "together":
        return None
    some = subject.training.take(spread_rows(subject.training, 1000))
    with torch.no_grad():
        outputs = subject.model().eval()(some.inputs)
    best = constant_losses(subject.recipe.loss_fn, outputs, some.targets).best
    return best if abs(best) < float("inf") else None
