"""Time forecast: how long the three stages will run, from what their parts took in preflight's own process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import pyarrow.parquet

from trainworthy.lifecycle.cost.checkpoint_interval import expected_checkpoints
from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.training.judging.references import ReferenceRows, references_of
from trainworthy.lifecycle.engine.training.validate import loss_of
from trainworthy.lifecycle.gates.seeds import seeds_of, updates_of_stages
from trainworthy.lifecycle.plan import monitored_rows, plan_of_counts
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.protocol.results import LINEAR
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.task import TARGET_STATE, fit_preprocessing
from trainworthy.lifecycle.tasks.labels import kind_of_rows

# Enough for a network's and a regression's speed on many rows, few enough for preflight's minute.
JUDGED_ROWS = 4000


def run_time(
    job: PreflightJob, sample: Sample, rows: pd.DataFrame, step: StepTime, start_seconds: float, trials: Sequence[Trial]
) -> RunTime:
    """The stages' seconds. `rows` are all of training, `start_seconds` what this process took until rows were read.

    Each of a stage's trainings has a worker of its own, and scores the validation rows at its end. Smoke and pilot fit
    references on them and on their own rows beside, full calibrates on about as many rows, exports, and
    scores the validation rows as its artifact does. Left out, as small: metrics, permutations, the calibration's fit.
    """
    row_seconds = _prepare_seconds(job, sample)
    trainings = {stage: len(seeds_of(job.training, stage)) for stage in STAGES}
    positives = int((rows[job.rows.label] == 1).sum())
    plans = {stage: plan_of_counts(len(rows), positives, job.training, job.stages, stage) for stage in STAGES}
    updates = updates_of_stages(len(rows), positives, job.training, job.stages)
    workers = sum(trainings.values())
    every = job.training.checkpoint_every_steps
    blocked, written = step.checkpoint_seconds, step.write_seconds
    checkpoints = sum(
        trainings[stage]
        * expected_checkpoints(updates[stage] // trainings[stage], step.seconds, every, blocked, written)
        for stage in STAGES
    )
    score_seconds, linear_seconds, other_seconds = _judge_seconds(job, sample)
    monitored = sum(monitored_rows(plan, job.training) * trainings[stage] for stage, plan in plans.items())
    judged = pyarrow.parquet.read_metadata(job.validation_file).num_rows
    export = sum(trial.seconds for trial in trials if trial.check == "one_batch.export")
    return RunTime(
        # torchrun imports torch before the processes do that it starts, one after the other.
        start_seconds=workers * (start_seconds * (2 if job.processes > 1 else 1) + step.compile_seconds),
        prepare_seconds=sum(plan.rows * trainings[stage] for stage, plan in plans.items()) * row_seconds,
        train_seconds=sum(updates.values()) * step.seconds + monitored * score_seconds,
        evaluate_seconds=_evaluations(job, updates) * judged * _evaluate_seconds(job, sample),
        # Each training waits for its last one's write, too.
        checkpoint_seconds=checkpoints * blocked + workers * written,
        # Each scores as many of its own rows, too, and full those of the calibration split and its artifact's answers.
        finish_seconds=judged * 2 * (workers + trainings["full"]) * score_seconds
        + sum(
            trainings[stage] * ((judged + math.ceil(fraction * len(rows))) * linear_seconds + other_seconds)
            for stage, fraction in (("smoke", job.stages.smoke), ("pilot", job.stages.pilot))
        )
        + export * trainings["full"],
        updates=sum(updates.values()),
        workers=workers,
    )


def _evaluations(job: PreflightJob, updates: Mapping[str, int]) -> int:
    """How often early stopping looks at the validation split if it ends no training."""
    stopping, evaluations = job.training.early_stopping, 0
    if stopping is None:
        return 0
    for stage, total in updates.items():
        trainings = len(seeds_of(job.training, stage))
        evaluations += trainings * math.ceil(total / trainings / stopping.every)
    return evaluations


def _evaluate_seconds(job: PreflightJob, sample: Sample) -> float:
    """Seconds a row that such a look takes, on the held-out rows of the sample, whose tensors are there already."""
    if job.training.early_stopping is None:
        return 0.0
    held_out = sample.subject.held_out
    return _second_call(loss_of(sample.task, sample.subject.model(), held_out, kind_of_rows(job.rows))) / len(
        held_out.targets
    )


def _prepare_seconds(job: PreflightJob, sample: Sample) -> float:
    """Seconds a row that preprocessing and tensors take, on the sample; loaders make tensors meanwhile."""
    if job.training.tensors == "per_batch":
        return 0.0
    features = sample.rows[list(job.rows.features)]
    target = sample.preprocessing.get(TARGET_STATE)
    started = time.perf_counter()
    sample.task.to_tensors(features, fit_preprocessing(sample.task, features, job.hyperparameters, target))
    return (time.perf_counter() - started) / len(sample.rows)


def _judge_seconds(job: PreflightJob, sample: Sample) -> tuple[float, float, float]:
    """Seconds a row of scoring with the fresh network, and of the cross-fitted linear model, on JUDGED_ROWS; and those
    of fitting the other references, whose time hangs little on the rows."""
    rows = sample.rows.iloc[:: math.ceil(len(sample.rows) / JUDGED_ROWS)]
    features, model, seed = rows[list(job.rows.features)], sample.subject.model(), job.training.seed
    reference_rows, fits = ReferenceRows(rows, rows, job.rows), references_of(kind_of_rows(job.rows))

    def score() -> object:
        return predict_rows(
            sample.task, model, sample.preprocessing, features, sample.subject.device, kind_of_rows(job.rows)
        )

    def fit() -> object:
        return reference_rows.cross_fitted(fits[LINEAR], seed, len(rows))

    of_rows = _second_call(score) / len(rows), _second_call(fit) / len(rows)
    began = time.perf_counter()
    for name in fits.keys() - {LINEAR}:
        reference_rows.fitted(fits[name], seed)
    return (*of_rows, time.perf_counter() - began)


def _second_call(work: Callable[[], object]) -> float:
    """Seconds without what the first call imports and fills, which the rows do not multiply."""
    work()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
