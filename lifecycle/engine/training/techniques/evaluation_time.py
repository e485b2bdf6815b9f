"""What the evaluation after a stage takes beside the network's own pass, measured on some rows before the stage."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

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
