"""What a training by a script has told so far, and whether it has to end; the script sees it through its Flight.

Progress, metrics, clock, deadline and curve are those of a training by our own loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from lifecycle.jobs import TrainJob
from lifecycle.progress import Progress
from lifecycle.records import Alarm
from lifecycle.trainers.gradients import Gradients, gradients_of
from lifecycle.trainers.recorder import Recorder, Told
from lifecycle.trainers.told_curve import ToldCurve
from lifecycle.trainers.watched import ScriptWatch, not_finite
from lifecycle.training.flight import PREFIX_STEPS
from lifecycle.training.monitors.non_finite import finite
from lifecycle.training.plan import Plan
from lifecycle.training.techniques.deadline import Deadline
from lifecycle.training.watching.clock import COMPUTE, START, Clock
from lifecycle.training.watching.metrics_file import FILE_NAME, MetricsFile

if TYPE_CHECKING:
    import torch

    from lifecycle.training.monitors.watch import Watch
    from lifecycle.training.state import TrainState

KEPT = 32
Why = Literal["planned", "asked", "budget", "rerun", "alarm"]
WORDS: dict[Why, str] = {
    "planned": "all planned updates are made",
    "asked": "it was asked to end",
    "budget": "the run's budget is as good as spent",
    "rerun": "the updates of the rerun are made",
    "alarm": "a monitor ended it",
}


class TrainingEndedError(Exception):
    """The training ended here: an alarm, or a script that was told to end and makes another update."""


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
    watch: ScriptWatch | None = None
    gradients: Gradients | None = None
    gradients_seen: bool = False
    curve: ToldCurve = field(init=False)
    # Of the newest updates, with what came between them.
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _told_at: float = field(default_factory=time.perf_counter)
    # What the checkpoint says of the monitors, till there is a watch.
    _watched: dict[str, Any] | None = None
    _progress: Progress | None = None
    _metrics: MetricsFile | None = None

    def __post_init__(self) -> None:
        self.curve = ToldCurve(self.plan.window)

    def begin(self, state: Mapping[str, Any] | None = None) -> None:
        """The script goes on from a checkpoint's state, or from the start; once, before the first update."""
        if self._progress is not None:
            return
        if state is not None:
            self.done = self.resumed_from = int(state["done"])
            self.curve.load_state_dict(state["curve"])
            self.prefix_sha256, self._watched = state["prefix_sha256"], state["monitors"]
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
        if self.watch is not None and (alarm := self.watch.before_told()) is not None:
            self._end_by(alarm)
        self.gradients = gradients_of(model)
        if self.gradients is None:
            return
        self.gradients_seen, norm = True, self.gradients.total
        if finite(norm):
            if self.watch is not None:
                self.watch.weigh(self.done, told.optimizers)
        elif not scaled:
            self._end_by_not_finite(told, norm)

    def tell(self, model: torch.nn.Module | None, told: Told) -> None:
        """One update more. Raises TrainingEndedError where no update may be made."""
        assert told.loss is not None
        self._go_on()
        self.clock.lap(COMPUTE)
        if not finite(told.loss):
            self._end_by_not_finite(told, None)
        self.recorder.told(self.done, told, self.gradients)
        self._see(model, told.loss, told)
        self.done, self.gradients = self.done + 1, None
        now = time.perf_counter()
        self.seconds.append(now - self._told_at)
        self._told_at = now
        self._show(told.loss, told)
        if model is not None and self.done == min(PREFIX_STEPS, self.plan.horizon_steps):
            from lifecycle.training.checkpoints.checkpoint import parameters_sha256

            self.prefix_sha256 = parameters_sha256(model)
        self.clock.step_done(self.done)
        self._end_after_update()
        self.recorder.before_update()
        if self.watch is not None:
            self.watch.look_at_next(self.done)

    def must_end(self) -> bool:
        """True if the script has to end its loop now."""
        if self.ended is None and self.asked():
            self.ended = "asked"
        return self.ended is not None

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs of it, as JSON."""
        return {
            "done": self.done, "curve": self.curve.state_dict(), "prefix_sha256": self.prefix_sha256,
            "monitors": self._watched if self.watch is None else self.watch.state_dict(),
        }  # fmt: skip

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """All that there were, the one that ended the training too."""
        found = () if self.watch is None else tuple(self.watch.alarms)
        return found if self.alarm is None or self.alarm in found else (*found, self.alarm)

    def close(self) -> None:
        """End the progress bar and write what waits."""
        for each in (self._progress, self._metrics):
            if each is not None:
                each.close()

    def _go_on(self) -> None:
        if self.ended is not None:
            self.ignored = self.ignored or self.ended != "alarm"
            raise TrainingEndedError(f"the training has ended: {WORDS[self.ended]}")
        self.begin()

    def _see(self, model: torch.nn.Module | None, loss: float, told: Told) -> None:
        """Ask the monitors, where the update's gradients were seen; a scaler leaves out those that are not finite."""
        seen = self.gradients
        if model is None or seen is None or not finite(seen.total):
            return
        if self.watch is None or len(seen.norms) != len(self.watch.parameters):
            self.watch = self._watch_over(model)
        alarm = self.watch.see(self.done, loss, seen, told.rows, told.rate)
        if alarm is not None:
            self._end_by(alarm)

    def _watch_over(self, model: torch.nn.Module) -> ScriptWatch:
        """A watch over the model: the first, or a fresh one where the script changed which parameters it has."""
        made = ScriptWatch(model, self.job, self.plan, self.clock, self.done, self._kept)
        if self.watch is not None:
            made.go_on_from(self.watch)
        elif self._watched is not None:
            made.load_state_dict(self._watched)
        return made

    def _kept(self, watch: Watch, state: TrainState, alarm: Alarm) -> Alarm:
        return self.recorder.kept(alarm, self.watch)

    def _show(self, loss: float, told: Told) -> None:
        assert self._progress is not None
        assert self._metrics is not None
        self._progress.advance(f"loss {loss:.4f}")
        closed = self.curve.add(self.done, told.rows, loss, told.rate)
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

    def _end_by_not_finite(self, told: Told, norm: float | None) -> NoReturn:
        self.recorder.told(self.done, told, self.gradients)
        self._end_by(self.recorder.kept(not_finite(self.done, told.loss, norm), self.watch))

    def _end_by(self, alarm: Alarm) -> NoReturn:
        self.ended, self.alarm = "alarm", alarm
        raise TrainingEndedError(f"{alarm.symptom}: {alarm.evidence}")
