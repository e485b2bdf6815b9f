"""What our own loop does around its updates: it shows them to the session, scores beside them, writes checkpoints.

The loop calls `after_step` after each update and knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import Checkpoints
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.session import Session
from trainworthy.lifecycle.engine.training.state import TrainState, Update
from trainworthy.lifecycle.engine.training.techniques.parts import after_update
from trainworthy.lifecycle.engine.training.watching.progressive import Progressive
from trainworthy.lifecycle.engine.training.watching.trace import Trace
from trainworthy.lifecycle.engine.training.watching.window_signals import window_signals
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.protocol.records import CurvePoint
from trainworthy.lifecycle.storage.metrics_file import WindowSignals


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
        state.prefix_sha256 = session.prefix(state.step, state.model) or state.prefix_sha256
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
        beside = () if self.progressive is None else self.progressive.after_step(state, closed)
        if closed is None:
            return ()
        self._windows = len(state.curve.points)
        signals = window_signals(self.watch, state.step, self.session.plan.window)
        self.watch.after_points(state, (closed, *beside))
        return (closed, *beside, *([signals] if signals else []))


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
