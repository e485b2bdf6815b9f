"""One stage's training under way, whoever makes its updates: who follows it, and why it has to end.

Its clients are our own loop (StepHooks) and the handle that a training script is given (trainers/session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import weights_sha256
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.techniques.deadline import Deadline
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsFile, WindowSignals

# An equal rerun must meet the parameters after this many updates.
PREFIX_STEPS = 20

Why = Literal["planned", "asked", "budget", "rerun", "alarm"]


@dataclass
class Session:
    """`asked` is True once somebody wants it to end. `ended` says why no further update may be made. `ranks` are the
    processes that train together, None where this is the only one.

    `begin` opens what is followed, progress and metrics.jsonl, and `close` closes it; in between come `updated` and
    `write`. A training that went back begins again.
    """

    job: TrainJob
    plan: Plan
    clock: Clock
    deadline: Deadline
    asked: Callable[[], bool]
    forward: Callable[[str], None] | None = None
    ranks: Ranks | None = None
    ended: Why | None = None
    begun: bool = False
    _progress: Progress | None = None
    _metrics: MetricsFile | None = None
    # Alarms that are in metrics.jsonl, by step and monitor.
    _written: set[tuple[int, str]] = field(default_factory=set)

    def begin(self, step: int, points: Sequence[CurvePoint]) -> None:
        """The update of `step` comes next; `points` are those so far."""
        self._progress = Progress(f"{self.job.stage}: step", self.plan.last_step, step, self.forward)
        self._metrics = MetricsFile(Path(self.job.out) / FILE_NAME)
        self._metrics.begin(step, points)
        self._written, self.ended, self.begun = set(), None, True

    def updated(self, step: int, shown: str, points: Sequence[CurvePoint | WindowSignals] = ()) -> None:
        """An update was made: `shown` tells of it, and `points` are those of the window that it closed."""
        assert self._progress is not None
        self._progress.advance(shown)
        if points:
            assert self._metrics is not None
            self._metrics.write(points)

    def write(self, alarms: Sequence[Alarm]) -> None:
        """Those of all `alarms` that are new, for who reads along."""
        assert self._metrics is not None
        if len(alarms) == len(self._written):
            return
        new = [alarm for alarm in alarms if (alarm.step, alarm.monitor) not in self._written]
        if new:
            self._metrics.write(new)
            self._written.update((alarm.step, alarm.monitor) for alarm in new)

    def prefix(self, step: int, weights: Callable[[], Mapping[str, Tensor]]) -> str | None:
        """The hash of the weights (a state dict) if `step` updates are those that an equal rerun repeats."""
        return weights_sha256(weights()) if step == min(PREFIX_STEPS, self.plan.horizon_steps) else None

    def asked_to_end(self) -> bool:
        """True if the training has to end because somebody wants it to."""
        if self.ended is None and self.asked():
            self.ended = "asked"
        return self.ended == "asked"

    def ends_after(self, step: int) -> bool:
        """True if no update comes after so many: all are made, those of a rerun are, or no budget is left."""
        if self.ended is None:
            if step == self.job.stop_after_steps:
                self.ended = "rerun"
            elif step >= self.plan.last_step:
                self.ended = "planned"
            elif self.deadline.after_update():
                self.ended = "budget"
        return self.ended is not None

    def close(self) -> None:
        """Also where it never began."""
        for each in (self._progress, self._metrics):
            if each is not None:
                each.close()
        self._progress = self._metrics = None
