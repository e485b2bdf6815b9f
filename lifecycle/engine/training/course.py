"""The updates of a stage from its newest checkpoint to its end, as often as its monitors make it go back.

What is done around an update is StepHooks: the loop calls `after_step` and knows nothing else of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainworthy.lifecycle.engine.incidents.record import make_recorder
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import WeightsNotFiniteError
from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import (
    Checkpoints,
    go_back,
    open_checkpoints,
    resume,
)
from trainworthy.lifecycle.engine.training.checkpoints.made_with import goes_on_by
from trainworthy.lifecycle.engine.training.judging.progress import is_reweighted
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.causes import diagnosed
from trainworthy.lifecycle.engine.training.monitors.closer_look import NoLooks
from trainworthy.lifecycle.engine.training.monitors.game import look_at_loss
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.prior import prior_loss
from trainworthy.lifecycle.engine.training.monitors.true_gradient import NOTHING, look_at_gradient
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.monitors.without_dropout import WithoutDropout
from trainworthy.lifecycle.engine.training.prepare import Prepared, seed_everything
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.ranks.orders import ASKED, END, RESTART
from trainworthy.lifecycle.engine.training.ranks.replicas import facts_of, join_ranks, on_device
from trainworthy.lifecycle.engine.training.recipe import make_model, make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.session import Session
from trainworthy.lifecycle.engine.training.state import TrainState, Update
from trainworthy.lifecycle.engine.training.techniques.parts import after_update, early_stopping_of, make_parts
from trainworthy.lifecycle.engine.training.validate import make_validation_loss
from trainworthy.lifecycle.engine.training.watching.clock import START, VALIDATION
from trainworthy.lifecycle.engine.training.watching.progressive import Progressive, make_progressive
from trainworthy.lifecycle.engine.training.watching.trace import Trace
from trainworthy.lifecycle.engine.training.watching.window_signals import window_signals
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.failure import EXIT_HANG
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.memory_limit import device_limit_bytes
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, TrainJob
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.storage.metrics_file import WindowSignals
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.tasks.labels import named_column

# Of a model that is divided.
NOT_LOOKED_AT = (
    "not looked at, since no process has the whole weights: layers and updates of weights (every twentieth update), "
    "replicas, whether the gradient is the slope of the loss, and the loss without dropout"
)


@dataclass
class StepHooks:
    """One stage under way. `open_hooks` makes it, and closes what it has open."""

    session: Session
    progressive: Progressive | None
    watch: Watch
    checkpoints: Checkpoints
    trace: Trace
    _windows: int = field(default=0)

    def after_step(self, state: TrainState, update: Update) -> bool:
        """True if the training ends here. Raises PreemptedError, with the checkpoint written, if asked to end."""
        session, plan = self.session, self.session.plan
        self.trace.after_update(state.step)
        shown = "batch left out" if update.skipped else f"loss {update.loss:.4f}"
        session.updated(state.step, shown, self._window_closed(state))
        session.write(self.watch.alarms)
        state.prefix_sha256 = session.prefix(state.step, state.weights) or state.prefix_sha256
        stops = after_update(state, plan.last_step, moved=not update.skipped)
        state.clock.step_done(state.step)
        if session.asked_to_end():
            self.checkpoints.last(state)
            raise PreemptedError
        if state.step < plan.last_step:
            self.checkpoints.after_step(state)
            session.deadline.saved(self.checkpoints.seconds)
        return stops or session.ends_after(state.step)

    def _window_closed(self, state: TrainState) -> Sequence[CurvePoint | WindowSignals]:
        """The points of the window that this update closed, with what was scored beside it, and shown to the watch."""
        closed = state.curve.points[-1] if len(state.curve.points) > self._windows else None
        scored = () if self.progressive is None else self.progressive.after_step(state, closed)
        if closed is None:
            return ()
        self._windows = len(state.curve.points)
        signals = window_signals(self.watch, state.step, self.session.plan.window)
        self.watch.after_points(state, (closed, *scored))
        return (closed, *scored, *([signals] if signals else []))


@contextmanager
def open_hooks(
    session: Session, state: TrainState, progressive: Progressive | None, watch: Watch, checkpoints: Checkpoints
) -> Iterator[StepHooks]:
    """The hooks from this state on; whatever ends it, all that is open is closed, and what ended it is raised."""
    job = session.job
    with ExitStack() as stack:
        stack.callback(session.close)
        trace = Trace(None if job.stop_after_steps else job.training.profile, Path(job.out))
        stack.callback(trace.close)
        session.begin(state.step, [*state.curve.points, *(() if progressive is None else progressive.points)])
        yield StepHooks(session, progressive, watch, checkpoints, trace, _windows=len(state.curve.points))


@dataclass
class Course:
    """A training under way or at its end. `alarm` is what stopped it; its checkpoint is then no result."""

    state: TrainState
    progressive: Progressive | None
    watch: Watch
    notes: tuple[str, ...]
    resumed_from: int
    alarm: Alarm | None = None
    checkpoint: CheckpointRef | None = None
    # Peaks of the other ranks, together.
    others_memory_bytes: float = 0.0


def take_course(session: Session, prepared: Prepared, device: str) -> Course:
    """Train to the plan's end, or to what ends it before. Raises what a stage does."""
    ranks = session.ranks
    if ranks is None:
        return _course(session, prepared, device)
    ranks.refuse_others(facts_of(session.job, prepared, session.plan))
    try:
        course = _course(session, prepared, device)
    except PreemptedError:
        ranks.order(ASKED, ranks.place.step)
        raise
    if ranks.shards is not None:
        course.state = _undivided(course.state, session.job, prepared, device)
    ranks.order(END, course.state.step)
    course.others_memory_bytes = ranks.others_sum(0.0)
    return course


def _course(session: Session, prepared: Prepared, device: str) -> Course:
    job, plan, seconds = session.job, session.plan, session.clock
    course = _started(session, prepared, device)
    if course.state.step:
        say(f"{job.stage}: resumed from step {course.state.step} of {plan.last_step}")
    seconds.lap(START)
    seconds.resume(course.state.step)
    while True:
        course.state.clock = seconds
        _train(course, session, prepared)
        watch = course.watch
        if watch.back_before is None:
            return course
        # As a resume does it: from what a checkpoint holds, and nothing that happened since.
        go_back(job, watch.back_before)
        if session.ranks is not None:
            session.ranks.order(RESTART, course.state.step)
        before, course = course, _started(session, prepared, device)
        course.watch.go_on_from(watch)
        course.notes, course.resumed_from = before.notes, before.resumed_from
        seconds.go_back(course.state.step)
        assert watch.ended is not None
        say(f"{job.stage}: {watch.ended.symptom}; back at step {course.state.step} of {plan.last_step}")
        if watch.ended.action == "stop":
            course.alarm = watch.ended
            return course


def _started(session: Session, prepared: Prepared, device: str) -> Course:
    """A fresh state, then the stage's own newest checkpoint, else the one of the stage before."""
    job, plan = session.job, session.plan
    seed_everything(job.training.seed)
    model = make_model(prepared.task, prepared.preprocessing, job.hyperparameters, job.training)
    recipe = make_recipe(prepared.task, job.training, plan.horizon_steps)
    # A model that is divided bears no copy.
    loss = look_at_loss(model, prepared.data, recipe) if job.sharding != "none" else None
    shards = on_device(model, device, session.ranks, job.sharding)
    state = TrainState(model, make_optimizers(prepared.task, model, job.training.optimizer), ranks=session.ranks)
    if shards is not None and session.ranks is not None:
        session.ranks.join_shards(shards, state.optimizers, plan.batch_size)
    state.also |= make_parts(job.training, model, lambda: make_validation_loss(job, prepared, model, device))
    progressive, left_out = make_progressive(
        plan, prepared.data, recipe, job.training.evaluate_every, prepared.reserve,
        {name: named_column(job.rows, prepared.rows, name) for name in job.slices}, job.rows.sensitive,
    )  # fmt: skip
    if progressive is not None:
        state.also["progressive"] = progressive
    limit = device_limit_bytes(device)
    # Both of the weights that every start begins from, so that a resumed training is judged by the same.
    prior = None if prepared.oversampled is not None else prior_loss(model, prepared.data, recipe, plan.batch_size)
    loss = loss or look_at_loss(model, prepared.data, recipe)
    gradient = look_at_gradient(model, prepared.data, recipe) if loss.deviates and shards is None else NOTHING
    wrong = (f"before the first update: {gradient.description}",) if gradient.wrong else ()
    monitors = all_monitors(
        state, plan, frozen=job.frozen, prior_loss=prior, memory_limit_bytes=limit,
        reweighted=is_reweighted(job, prepared),
        without_dropout=WithoutDropout(model, prepared.data, recipe, plan.batch_size) if shards is None else _unknown,
    )  # fmt: skip
    heartbeat = Heartbeat(Path(job.out), partial(end_if_declared, job))
    # Weights that the last update has spoiled are seen after it.
    batch = lambda step: tuple(plan.batch(min(step, plan.last_step - 1)).tolist())
    recorder = make_recorder(job, prepared, plan, device, batch)
    watch = Watch(
        model, job.training.monitors, monitors, plan.last_step, recorder, heartbeat, loss.game,
        looks=None if shards is None else NoLooks(shards.not_finite),
        gradient=partial(look_at_gradient, model, prepared.data, recipe) if shards is None else None,
    )  # fmt: skip
    state.also["monitors"] = watch
    divided = () if shards is None else (f"{shards.told}; {NOT_LOOKED_AT}",)
    notes = left_out + wrong + divided + resume(job, state)
    state.made_by = goes_on_by(state.made_by, state.step, 1 if session.ranks is None else session.ranks.size)
    if session.ranks is not None:
        join_ranks(session.ranks, state, prepared, plan, recipe)
    return Course(state, progressive, watch, notes, state.step)


def _undivided(state: TrainState, job: TrainJob, prepared: Prepared, device: str) -> TrainState:
    """The first rank's state at the end with a whole model, which it evaluates and exports alone, and no optimizers."""
    with random_kept():
        model = make_model(prepared.task, prepared.preprocessing, job.hyperparameters, job.training)
    model.load_state_dict(state.weights())
    return replace(state, model=model.to(device), optimizers=(), ranks=None)


def _unknown() -> None:
    """What the loss would be without dropout, of a model that bears no copy."""


def _train(course: Course, session: Session, prepared: Prepared) -> None:
    """Train from the course's state on, and write the last checkpoint."""
    state, stopping, job = course.state, early_stopping_of(course.state), session.job
    with open_checkpoints(job, state) as checkpoints:
        with open_hooks(session, state, course.progressive, course.watch, checkpoints) as hooks:
            try:
                if stopping is None or not stopping.ended:
                    course.alarm = _updates(state, prepared, hooks)
                if not (course.alarm or job.stop_after_steps):
                    course.checkpoint = checkpoints.last(state)
            except WeightsNotFiniteError:
                course.alarm = course.watch.weights_are_bad(state)
        course.notes += (*checkpoints.cost_notes(), *hooks.trace.notes())


def end_if_declared(job: TrainJob, finding: Finding) -> None:
    """On the heartbeat's thread: end the process if that is declared of a hang, since what hangs cannot."""
    if job.training.monitors.hang == "stop":
        problem = f"{finding.symptom}: {finding.evidence}"
        error = {"problem": problem, "value": None, "fix": diagnosed(finding).fix}
        write_atomic(Path(job.out) / "error.json", canonical_json(error))
        os._exit(EXIT_HANG)


def _updates(state: TrainState, prepared: Prepared, hooks: StepHooks) -> Alarm | None:
    job, plan = hooks.session.job, hooks.session.plan
    data, recipe = prepared.data, make_recipe(prepared.task, job.training, plan.horizon_steps)
    if isinstance(data, LoadedRows):
        data, recipe = data.in_loaders(recipe)
    if hooks.progressive is not None:
        hooks.progressive.before_first_step(state)
        state.clock.lap(VALIDATION)
    with hooks.watch.heart():
        return train(state, data, plan, recipe, hooks.after_step, hooks.watch)
