"""Preflight of a use case that trains by a script of its own: its trial, and the forecasts that follow from it.

The network's checks go on to try model.py's own functions, where it has them (engine/preflight/run.py).
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet

from trainworthy.lifecycle.cost.checkpoint_interval import expected_checkpoints
from trainworthy.lifecycle.cost.duration import forecast_of
from trainworthy.lifecycle.engine.leakage import leakage_of_code
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.catalogue import TRAINER_CHECKS, WORKER_CHECKS
from trainworthy.lifecycle.engine.preflight.memory.forecast import HIGH, LOW
from trainworthy.lifecycle.engine.preflight.sample import drawn_rows
from trainworthy.lifecycle.engine.trainers.checks import not_for_a_script
from trainworthy.lifecycle.engine.trainers.trial import ScriptTrial, try_script
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.gates.check import untried, untried_as_declared
from trainworthy.lifecycle.gates.seeds import seeds_of, updates_of_stages
from trainworthy.lifecycle.plan import rows_of_stage
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime
from trainworthy.lifecycle.protocol.jobs import PreflightJob, TrainJob
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.protocol.records import STAGES, Forecast
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.task import Task, fit_preprocessing
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of
from trainworthy.lifecycle.training_script import NETWORK_FUNCTIONS


def with_script(job: PreflightJob) -> PreflightJob:
    """The job without the checks that are about our own loop; what is declared goes before."""
    assert job.trainer is not None
    left_out = not_for_a_script(job.trainer) | job.claims.not_applicable
    return job.model_copy(update={"claims": job.claims.model_copy(update={"not_applicable": left_out})})


def has_network(task: Task) -> bool:
    """True if model.py says what is trained and on what loss, so that the battery can try it."""
    return all(callable(getattr(task, name, None)) for name in NETWORK_FUNCTIONS)


def try_trainer(job: PreflightJob, rows: pd.DataFrame) -> tuple[ScriptTrial, tuple[Trial, ...]]:
    """The script's trial on the sample, and its checks. `rows` are all of training."""
    say(f"preflight: {job.trainer}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "rows.parquet"
        # Every column that a stage reads, of the rows that the battery is given.
        pd.read_parquet(job.training_file).iloc[drawn_rows(job, rows)].to_parquet(sample, index=False)
        tried = try_script(job_of_trial(job, sample, Path(folder)), Path(folder))
    seconds = time.perf_counter() - began
    first, *others = run_checks(TRAINER_CHECKS, tried, device=job.device, not_applicable=job.claims.not_applicable)
    # Of all that the checks look at, told once.
    return tried, (first.model_copy(update={"seconds": seconds + first.seconds}), *others)


def untried_trainer(job: PreflightJob, why: str) -> tuple[Trial, ...]:
    """The trainer's checks where the battery ended before them; none if our loop trains."""
    checks = TRAINER_CHECKS if job.trainer else ()
    return tuple(untried_as_declared(check, why, job.claims.not_applicable) for check in checks)


def step_of(tried: ScriptTrial, step: StepTime) -> StepTime:
    """What our loop would take for an update, with what the script took in its place."""
    measured = {"seconds": tried.update_seconds, "rows_seconds": 0.0, "augment_seconds": 0.0}
    saved = {"checkpoint_seconds": tried.checkpoint_seconds, "write_seconds": 0.0}
    return step.model_copy(update=measured | saved) if tried.update_seconds else step


def without_network(
    job: PreflightJob, rows: pd.DataFrame, task: Task, start_seconds: float, device: str
) -> PreflightResult:
    """The answer where model.py does not say what is trained: the trial's checks and forecasts, and leakage."""
    tried, trials = try_trainer(job, rows)
    why = f"{' and '.join(NETWORK_FUNCTIONS)} are not both in model.py: only {job.trainer} knows the network"
    battery = tuple(untried(check, why, "not_applicable") for check in WORKER_CHECKS)
    known = tried.update_seconds > 0
    whole = _run_time(job, rows, tried, start_seconds) if known else None
    return PreflightResult(
        memory=_memory(job, rows, tried) if known else None,
        seconds=None if whole is None else forecast_of(whole),
        time=whole,
        trials=(*battery, *trials),
        leakage=_leakage(job, rows, task),
        untried="" if known else f"{job.trainer} did not come to an update that could be timed",
        device=device,
    )


def _leakage(job: PreflightJob, rows: pd.DataFrame, task: Task) -> tuple[Leak, ...]:
    drawn = rows.iloc[drawn_rows(job, rows)].reset_index(drop=True)
    seed_everything(job.training.seed)
    target = kind_of_rows(job.rows).target_state(labels_of(job.rows, drawn))
    preprocessing = fit_preprocessing(task, drawn[list(job.rows.features)], job.hyperparameters, target)
    return leakage_of_code(job, task, drawn, preprocessing, None, rows)


def job_of_trial(job: PreflightJob, sample: Path, folder: Path) -> TrainJob:
    """A job of the full stage on the sample."""
    same = ("use_case_folder", "device", "rows", "loaders", "training", "stages", "hyperparameters", "trainer", "split")
    return TrainJob(
        **{name: getattr(job, name) for name in same},
        out=str(folder), identity="preflight", stage="full", training_file=str(sample),
        validation_file=job.validation_file, calibration_file=job.validation_file, frozen=job.claims.frozen,
    )  # fmt: skip


def _run_time(job: PreflightJob, rows: pd.DataFrame, tried: ScriptTrial, start_seconds: float) -> RunTime:
    """The stages' seconds by what the script took. Left out, as small: metrics, baselines, the calibration's fit."""
    trainings = {stage: len(seeds_of(job.training, stage)) for stage in STAGES}
    positives, workers = int((rows[job.rows.label] == 1).sum()), sum(trainings.values())
    updates = updates_of_stages(len(rows), positives, job.training, job.stages)
    trained = sum(rows_of_stage(len(rows), job.training, job.stages, stage) * trainings[stage] for stage in STAGES)
    every, block = job.training.checkpoint_every_steps, tried.checkpoint_seconds
    checkpoints = sum(
        trainings[stage]
        * expected_checkpoints(updates[stage] // trainings[stage], tried.update_seconds, every, block, 0.0)
        for stage in STAGES
    )
    judged = pyarrow.parquet.read_metadata(job.validation_file).num_rows * (workers + 2 * trainings["full"])
    return RunTime(
        start_seconds=workers * max(start_seconds, tried.start_seconds),
        # Scoring a row makes its tensors, too.
        prepare_seconds=trained * tried.row_seconds,
        train_seconds=sum(updates.values()) * tried.update_seconds,
        checkpoint_seconds=checkpoints * block,
        finish_seconds=judged * tried.row_seconds + tried.export_seconds * trainings["full"],
        updates=sum(updates.values()),
        workers=workers,
    )


def _memory(job: PreflightJob, rows: pd.DataFrame, tried: ScriptTrial) -> Forecast:
    """The trial's peak, and the rows beyond its sample, twice: as they are read, and as tensors."""
    more = 1 - len(drawn_rows(job, rows)) / len(rows)
    value = tried.peak_memory_bytes + 2 * math.ceil(more * rows.memory_usage(deep=False).sum())
    return Forecast(name="memory", unit="bytes", value=float(value), low=value * LOW, high=value * HIGH)
