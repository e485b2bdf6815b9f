"""When a stage has to end so that its run keeps its budget, its last checkpoint and its evaluation included."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.techniques.evaluation_time import regression_seconds, tensor_seconds_a_row
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob


class Deadline:
    """Asked after each update. What is still needed is estimated from what this stage has measured of itself.

    Scoring a row takes at most as long as training on it, and `prepare_seconds_per_row` for its tensors; a checkpoint
    as long as the slowest so far. `beside_seconds` is what the evaluation does with rows alone. `clock` gives Unix
    time: a worker that is started again has no more seconds than before.
    """

    def __init__(
        self,
        job: TrainJob,
        prepare_seconds_per_row: float,
        batch_rows: int,
        clock: Callable[[], float] = time.time,
        beside_seconds: float = 0.0,
    ) -> None:
        self.ends_at, self.batch_rows, self.clock = job.ends_at, batch_rows, clock
        self.prepare_seconds_per_row, self.beside_seconds = prepare_seconds_per_row, beside_seconds
        self.scored_rows = 0 if job.ends_at is None else _scored_rows(job)
        self.save_seconds = 0.0
        self.reached = False
        self._started, self._updates = clock(), 0

    def saved(self, seconds: float) -> None:
        """A checkpoint took this long."""
        self.save_seconds = max(self.save_seconds, seconds)

    def after_update(self) -> bool:
        """True if the stage has to end now."""
        if self.ends_at is None:
            return False
        self._updates += 1
        if self._updates == 1:
            # The first update also starts loaders and kernels; what it took says nothing of the others.
            self._started = self.clock()
        self.reached = self.clock() + self.needed_seconds() >= self.ends_at
        return self.reached

    def needed_seconds(self) -> float:
        """Another update, the last checkpoint, and the evaluation."""
        update = (self.clock() - self._started) / max(1, self._updates - 1)
        scored = self.scored_rows * (self.prepare_seconds_per_row + update / self.batch_rows)
        return update + self.save_seconds + scored + self.beside_seconds


def make_deadline(job: TrainJob, prepared: Prepared, plan: Plan, prepare_seconds: float) -> Deadline:
    """The stage's deadline; what the evaluation takes beside the network's pass is measured on some rows."""
    if job.ends_at is None:
        return Deadline(job, 0.0, plan.batch_size)
    # What was found prepared took no time; what was not has been read from its file, too.
    row_seconds = max(prepare_seconds / len(prepared.rows), tensor_seconds_a_row(job, prepared, plan))
    beside = regression_seconds(job, prepared, _rows_in(job.validation_file))
    return Deadline(job, row_seconds, plan.batch_size, beside_seconds=beside)


def _scored_rows(job: TrainJob) -> int:
    """Rows that are scored after the last update: validation, and after the full stage calibration."""
    return _rows_in(job.validation_file) + (_rows_in(job.calibration_file) if job.stage == "full" else 0)


def _rows_in(file: str) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(file).num_rows
