"""When a stage has to end so that its run keeps its budget, its last checkpoint and its evaluation included."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

import pyarrow.parquet as pq

from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.labels import kind_of_rows

# Long enough that what a call costs by itself does not count.
ENOUGH_SECONDS = 0.1
# Of so many rows the first regression is fitted.
FIRST_ROWS = 1000


def tensor_seconds_a_row(job: TrainJob, prepared: Prepared, plan: Plan) -> float:
    """Making tensors of a row in this process, as scoring does: neither by loaders nor from kept features."""
    features = prepared.rows[list(job.rows.features)]

    def make(count: int) -> None:
        prepared.task.to_tensors(features.iloc[:count], prepared.preprocessing)

    with random_kept():
        return seconds_a_row(make, len(features), plan.batch_size)


def regression_seconds(job: TrainJob, prepared: Prepared, validation_rows: int) -> float:
    """The regressions that the pilot's network is held against: of each half of the validation rows, and of its own."""
    if job.stage != "pilot":
        return 0.0
    columns, rows = list(job.rows.features), prepared.rows

    def fit(count: int) -> None:
        some = rows.iloc[:: max(1, len(rows) // count)]
        # Rows of one class only say nothing of the time.
        with contextlib.suppress(EvaluationError):
            fit_baselines(some, columns, job.rows.label, ("linear",), job.training.seed, kind_of_rows(job.rows))[
                "linear"
            ](some[columns])

    share = job.stages.fraction(job.stage) if job.stages.mode == "continue" else 1.0
    with random_kept():
        return seconds_a_row(fit, len(rows), FIRST_ROWS) * (validation_rows + math.ceil(share * len(rows)))


def seconds_a_row(
    make: Callable[[int], object], rows: int, first: int, now: Callable[[], float] = time.perf_counter
) -> float:
    """What `make` of some rows takes for one, of more rows each time until it takes ENOUGH_SECONDS or has all of them.

    Before it is measured it is called once on few rows, for what only a first call does.
    """
    count = min(first, rows)
    make(max(1, count // 8))
    while True:
        started = now()
        make(count)
        took = now() - started
        if took >= ENOUGH_SECONDS or count == rows:
            return took / count
        count = min(4 * count, rows)


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
    extra_seconds = regression_seconds(job, prepared, _rows_in(job.validation_file))
    return Deadline(job, row_seconds, plan.batch_size, beside_seconds=extra_seconds)


def _scored_rows(job: TrainJob) -> int:
    """Rows that are scored after the last update: validation, and after the full stage calibration."""
    return _rows_in(job.validation_file) + (_rows_in(job.calibration_file) if job.stage == "full" else 0)


def _rows_in(file: str) -> int:
    return pq.read_metadata(file).num_rows
