"""What goes on around the updates of a stage: progress, metrics, checkpoints, the budget, and a request to end.

The loop calls `after_step` after each update and knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import Checkpoints
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState, Update
from trainworthy.lifecycle.engine.training.techniques.deadline import Deadline
from trainworthy.lifecycle.engine.training.techniques.parts import after_update
from trainworthy.lifecycle.engine.training.watching.progressive import Progressive
from trainworthy.lifecycle.engine.training.watching.trace import Trace
from trainworthy.lifecycle.engine.training.watching.window_signals import window_signals
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsFile

# An equal rerun must meet the parameters after this many updates.
PREFIX_STEPS = 20


@dataclass
class StepHooks:
    """One stage under way. `open_hooks` makes it, and closes what it has open."""

    job: TrainJob
    plan: Plan
    progressive: Progressive | None
    watch: Watch
    checkpoints: Checkpoints
    deadline: Deadline
    trace: Trace
    progress: Progress
    metrics: MetricsFile
    should_stop: Callable[[], bool]
    _windows: int = field(default=0)
    _alarms: int = field(default=0)

    def after_step(self, state: TrainState, update: Update) -> bool:
        """True if the training ends here. Raises PreemptedError, with the checkpoint written, if asked to end."""
        self.progress.advance("batch left out" if update.skipped else f"loss {update.loss:.4f}")
        self.trace.after_update(state.step)
        self._watch(state)
        if state.step == min(PREFIX_STEPS, self.plan.horizon_steps):
            state.prefix_sha256 = parameters_sha256(state.model)
        ended = after_update(state, self.plan.last_step, moved=not update.skipped)
        state.clock.step_done(state.step)
        if self.should_stop():
            self.checkpoints.last(state)
            raise PreemptedError
        if state.step < self.plan.last_step:
            self.checkpoints.after_step(state)
            self.deadline.saved(self.checkpoints.seconds)
            ended = ended or self.deadline.after_update()
        return ended or state.step == self.job.stop_after_steps

    def _watch(self, state: TrainState) -> None:
        """Write the window that this update closed, what was scored beside it, and new alarms."""
        closed = state.curve.points[-1] if len(state.curve.points) > self._windows else None
        beside = () if self.progressive is None else self.progressive.after_step(state, closed)
        if closed is not None:
            self._windows = len(state.curve.points)
            signals = window_signals(self.watch, state.step, self.plan.window)
            self.metrics.write([closed, *beside, *([signals] if signals else [])])
            self.watch.after_points(state, (closed, *beside))
        if len(self.watch.alarms) > self._alarms:
            self.metrics.write(self.watch.alarms[self._alarms :])
            self._alarms = len(self.watch.alarms)


@contextmanager
def open_hooks(
    job: TrainJob,
    state: TrainState,
    plan: Plan,
    progressive: Progressive | None,
    watch: Watch,
    checkpoints: Checkpoints,
    deadline: Deadline,
    should_stop: Callable[[], bool],
    forward: Callable[[str], None] | None,
) -> Iterator[StepHooks]:
    """The hooks from this state on; whatever ends it, all that is open is closed, and what ended it is raised."""
    folder = Path(job.out)
    with ExitStack() as stack:
        progress = Progress(f"{job.stage}: step", plan.last_step, state.step, forward)
        stack.callback(progress.close)
        metrics = MetricsFile(folder / FILE_NAME)
        stack.callback(metrics.close)
        trace = Trace(None if job.stop_after_steps else job.training.profile, folder)
        stack.callback(trace.close)
        metrics.begin(state.step, [*state.curve.points, *(() if progressive is None else progressive.points)])
        yield StepHooks(
            job, plan, progressive, watch, checkpoints, deadline, trace, progress, metrics, should_stop,
            _windows=len(state.curve.points),
        )  # fmt: skip
