"""Time forecast: how long the three stages will run, from what their parts took in preflight's own process."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lifecycle.jobs import PreflightJob
from lifecycle.preflight.check import Trial
from lifecycle.preflight.duration import RunTime, StepTime
from lifecycle.preflight.sample import Sample
from lifecycle.records import STAGES
from lifecycle.task import fit_preprocessing
from lifecycle.training.plan import Plan, make_plan

if TYPE_CHECKING:
    import pandas as pd


def run_time(
    job: PreflightJob, sample: Sample, rows: pd.DataFrame, step: StepTime, start_seconds: float, trials: Sequence[Trial]
) -> RunTime:
    """The stages' seconds. `rows` are all of training, `start_seconds` what this process took until rows were read.

    What a stage does once at its end is taken from the trials of one batch, which do the same on a batch.
    """
    row_seconds = _prepare_seconds(job, sample)
    plans = [_plan(job, len(rows), stage) for stage in STAGES]
    updates = [plan.last_step - plan.first_step for plan in plans]
    checkpoints = sum(1 + count // job.training.checkpoint_every_steps for count in updates)
    finish = sum(trial.seconds for trial in trials if trial.family == "one_batch")
    return RunTime(
        start_seconds=len(plans) * start_seconds,
        prepare_seconds=sum(plan.rows for plan in plans) * row_seconds,
        train_seconds=sum(updates) * step.seconds,
        checkpoint_seconds=checkpoints * step.checkpoint_seconds,
        finish_seconds=finish,
        updates=sum(updates),
    )


def _plan(job: PreflightJob, rows: int, stage: str) -> Plan:
    fraction = job.stages.fraction(stage) if job.stages.mode == "restart" else 1.0
    return make_plan(math.ceil(fraction * rows), job.training, job.stages, stage)


def _prepare_seconds(job: PreflightJob, sample: Sample) -> float:
    """Seconds a row that preprocessing and tensors take, on the sample."""
    features = sample.rows[list(job.rows.features)]
    started = time.perf_counter()
    sample.task.to_tensors(features, fit_preprocessing(sample.task, features, job.hyperparameters))
    return (time.perf_counter() - started) / len(sample.rows)
