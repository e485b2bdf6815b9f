"""Time forecast: how long the three stages' workers will run."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

from lifecycle.jobs import PreflightJob
from lifecycle.preflight.sample import Sample
from lifecycle.preflight.subject import Subject
from lifecycle.records import STAGES, Forecast
from lifecycle.task import fit_preprocessing
from lifecycle.training.loop import train_step
from lifecycle.training.plan import make_plan

if TYPE_CHECKING:
    import pandas as pd

TIMED_STEPS = 15
# Starting a worker (imports of torch, pandas, scikit-learn) and exporting: measured 4 to 8 s on 2 cores.
START_SECONDS = 6.0
# A shared machine's speed drifts; the interval is wide on purpose until measured errors narrow it.
LOW, HIGH = 0.6, 2.0


def forecast_seconds(job: PreflightJob, sample: Sample, rows: pd.DataFrame) -> Forecast:
    """Wall seconds of smoke, pilot and full together: timed steps, preparation and start-up."""
    step_seconds = time_step(sample.subject)
    started = time.perf_counter()
    features = sample.rows[list(job.rows.features)]
    sample.task.to_tensors(features, fit_preprocessing(sample.task, features, job.hyperparameters))
    prepare_seconds = (time.perf_counter() - started) / len(sample.rows)
    value = 0.0
    for stage in STAGES:
        fraction = job.stages.fraction(stage) if job.stages.mode == "restart" else 1.0
        stage_size = math.ceil(fraction * len(rows))
        plan = make_plan(stage_size, job.training, job.stages, stage)
        value += START_SECONDS + stage_size * prepare_seconds + (plan.last_step - plan.first_step) * step_seconds
    return Forecast(name="seconds", unit="seconds", value=value, low=value * LOW, high=value * HIGH)


def time_step(subject: Subject) -> float:
    """Median seconds of an update, after a warm-up. train_step reads its loss, so the device has finished."""
    import torch

    state, size = subject.state(), min(subject.plan.batch_size, len(subject.training.targets))
    state.model.train()
    times = []
    for number in range(TIMED_STEPS + 3):
        rows = torch.arange(size, device=subject.device).roll(number)
        started = time.perf_counter()
        train_step(state, subject.training, rows, subject.recipe)
        times.append(time.perf_counter() - started)
    return statistics.median(times[3:])
