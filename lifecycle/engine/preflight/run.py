"""Preflight in the worker: one sample, then memory, every check in the order of its cost, time and leakage.

Memory comes first: a model that does not fit must not be built to find that out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from trainworthy.lifecycle.cost.duration import forecast_of
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.leakage import leakage_in_training
from trainworthy.lifecycle.engine.preflight import other_process
from trainworthy.lifecycle.engine.preflight.battery import run_checks, same_random_numbers
from trainworthy.lifecycle.engine.preflight.catalogue import SUBJECT_CHECKS, WORKER_CHECKS
from trainworthy.lifecycle.engine.preflight.configuration import checks as configuration
from trainworthy.lifecycle.engine.preflight.configuration.kernels import in_fp32
from trainworthy.lifecycle.engine.preflight.cpu_first import cpu_first
from trainworthy.lifecycle.engine.preflight.inputs import checks as inputs
from trainworthy.lifecycle.engine.preflight.memory.forecast import (
    fits_here,
    forecast_memory,
    passing_bytes,
    step_memory,
)
from trainworthy.lifecycle.engine.preflight.on_device import on_device
from trainworthy.lifecycle.engine.preflight.one_batch import checks as one_batch
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.own import own_checks
from trainworthy.lifecycle.engine.preflight.sample import Sample, draw_sample
from trainworthy.lifecycle.engine.preflight.start import checks as start
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.throughput.checks import step_time
from trainworthy.lifecycle.engine.preflight.throughput.seconds import run_time
from trainworthy.lifecycle.engine.preflight.wiring import checks as wiring
from trainworthy.lifecycle.engine.trainers.preflight import (
    has_network,
    step_of,
    try_trainer,
    untried_trainer,
    with_script,
    without_network,
)
from trainworthy.lifecycle.engine.trainers.trial import ScriptTrial
from trainworthy.lifecycle.gates.check import Check, untried_as_declared
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.forecasts import MemoryForecast
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.results import FewestNodes, PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.task import error_line, load_task
from trainworthy.lifecycle.tasks.baselines import BASELINES
from trainworthy.lifecycle.tasks.own import try_own


def run_preflight(job: PreflightJob, began: float | None = None) -> PreflightResult:
    """Try the use case out. What one failed batch makes impossible is left unmeasured, never guessed.

    `began` is when the process did, in seconds of time.time(); a stage's worker takes as long to its rows. None: now.
    """
    return on_device(job, functools.partial(_run, began=time.time() if began is None else began))


def _run(job: PreflightJob, device: str, began: float) -> PreflightResult:
    # As a stage has them: rows that become tensors batch by batch are left on the disk.
    mapped_in = Path(job.out) if job.training.tensors == "per_batch" else None
    rows = read_rows(job.training_file, job.rows, (job.rows.weight,) if job.rows.weight else (), mapped_in=mapped_in)
    start_seconds = time.time() - began
    _try_own(job)
    if job.trainer is not None:
        job = with_script(job)
        task = load_task(Path(job.use_case_folder))
        if not has_network(task):
            return without_network(job, rows, task, start_seconds, device)
    sample = checked(draw_sample(job, rows, device))

    with same_random_numbers():
        sample = replace(sample, passing=passing_bytes(job, sample))

    def fits(step: MemoryForecast) -> bool:
        return fits_here(forecast_memory(job, sample, rows, step), step, job.memory_limit_bytes, device)

    with same_random_numbers():
        held = step_memory(sample.subject, job.gpu_memory_gb, lambda error: _describe(error, job), fits, job.gpu_counts)
    fields: dict[str, Any] = {"device": device, "memory": None, "step_memory": held.forecast, "gpus": held.gpus}
    if held.forecast is not None and not fits(held.forecast):
        fields["memory"] = forecast_memory(job, sample, rows, held.forecast)
        return _ended(job, sample, (), "not tried, since the model may not fit into memory here", fields)
    # A family is told once, where most of it is tried.
    trials = _tried(job, sample, device, (start.FINITE_WEIGHTS,), sample.subject, announced="start")
    if trials[0].status == "fail":
        return _ended(job, sample, trials, f"not tried, since {trials[0].evidence}", fields)
    kernels = _tried(job, sample, device, (configuration.KERNELS,), sample.subject)
    if kernels[0].status == "fail":
        # Of the rows everything can be asked: what they hold does not depend on the precision.
        trials += for_cuda(kernels, job, device)
        trials += _tried(job, sample, device, inputs.CHECKS, in_fp32(sample.subject))
        return _ended(job, sample, trials, f"not tried, since {kernels[0].evidence}", fields)
    parameters = 0 if held.forecast is None else held.forecast.parameter_count
    with other_process.asked(job, sample.task, parameters) as other:
        trials += kernels
        trials += _tried(job, sample, device, one_batch.CHECKS, (job, sample))
        if any(trial.status in ("fail", "error") for trial in trials):
            # The cheap checks know the cause better: dropout in evaluation fails a prediction and an export.
            trials += _tried(job, sample, device, _cheap(trials), sample.subject)
            return _ended(job, sample, trials, "not tried, since one batch failed", fields)
        # Ended before anything is timed.
        trials += _tried(job, sample, device, other_process.CHECKS, other, announced="determinism")
    trials += _tried(job, sample, device, configuration.JOB_CHECKS, (job, sample), announced="configuration")
    trials += _tried(job, sample, device, SUBJECT_CHECKS, sample.subject, announced="configuration")
    trials += _tried(job, sample, device, overfit.CHECKS, sample.subject)
    trials += _tried(job, sample, device, _own(job, sample), sample.subject)
    script, trainer_trials = try_trainer(job, rows) if job.trainer else (None, ())
    trials += trainer_trials
    say("preflight: memory and time")
    # Once more, since what the trials imported stays in memory, as it will in a stage.
    fields["memory"] = None if held.forecast is None else forecast_memory(job, sample, rows, held.forecast)
    fields["fewest"] = _of_fewest_nodes(job, sample, rows, fits)
    timed = _timed(job, sample, rows, start_seconds, trials, script)
    say("preflight: leakage")
    leakage = leakage_in_training(job, sample, rows)
    untried = "; ".join(why for why in (held.problem, timed.pop("untried")) if why)
    return PreflightResult(trials=trials, leakage=leakage, untried=untried, **timed, **fields)


def _of_fewest_nodes(
    job: PreflightJob, sample: Sample, rows: pd.DataFrame, fits: Callable[[MemoryForecast], bool]
) -> FewestNodes | None:
    """The memory where each process has the most rows of an update; None where all nodes train or none."""
    few = sample.subject.with_fewest_nodes()
    if few is None:
        return None
    with same_random_numbers():
        held = step_memory(few, job.gpu_memory_gb, lambda error: _describe(error, job), fits, job.gpu_counts)
    memory = forecast_memory(job, replace(sample, subject=few), rows, held.forecast) if held.forecast else None
    return FewestNodes(memory=memory, step_memory=held.forecast, gpus=held.gpus)


def checked(sample: Sample) -> Sample:
    """A sample of a subject that checks may ask anything of."""
    return replace(sample, subject=cpu_first(sample.subject))


def _try_own(job: PreflightJob) -> None:
    """Call the use case's own metrics and baselines on validation rows. Raises UseCaseError for what gives nothing."""
    if job.metrics or set(job.baselines) - set(BASELINES):
        rows = read_rows(job.validation_file, job.rows, extra=job.metric_columns)
        try_own(Path(job.use_case_folder), job.metrics, job.baselines, rows, job.rows, job.metric_columns)


def _timed(
    job: PreflightJob,
    sample: Sample,
    rows: pd.DataFrame,
    start_seconds: float,
    trials: tuple[Trial, ...],
    script: ScriptTrial | None = None,
) -> dict[str, Any]:
    """The forecast of time and what it is made of; all None and why, if the use case's code breaks meanwhile."""
    try:
        step = step_time(sample.subject)
        if script is not None:
            step, start_seconds = step_of(script, step), max(start_seconds, script.start_seconds)
        whole = run_time(job, sample, rows, step, start_seconds, trials)
    except Exception as error:
        # What was tried before stays, whatever the code raises now.
        return {
            "seconds": None,
            "step": None,
            "time": None,
            "untried": f"time was not measured: {_describe(error, job)}",
        }
    return {"seconds": forecast_of(whole), "step": step, "time": whole, "untried": ""}


def run_battery(subject: Subject) -> tuple[Trial, ...]:
    """Every check that needs no more than the subject, so that a network can be tried without a use case."""
    subject = cpu_first(subject)
    checks, declared = (*SUBJECT_CHECKS, *overfit.CHECKS), subject.claims.not_applicable
    done: tuple[Trial, ...] = ()
    for first in (start.FINITE_WEIGHTS, configuration.KERNELS):
        done += run_checks((first,), subject, device=subject.device, not_applicable=declared)
        if done[-1].status == "fail":
            why, known = f"not tried, since {done[-1].evidence}", {trial.check for trial in done}
            rest = (check for check in (configuration.KERNELS, *checks) if check.id not in known)
            return (*done, *(untried_as_declared(check, why, declared) for check in rest))
    return (*done, *run_checks(checks, subject, device=subject.device, not_applicable=declared))


def for_cuda(trials: tuple[Trial, ...], job: PreflightJob, device: str) -> tuple[Trial, ...]:
    """What a CPU cannot run, a job's GPU may: nothing is wrong with it, and it has to be tried there."""
    if job.device != "cuda" or device == "cuda":
        return trials
    fix = "run preflight where the job will run, with a GPU and a CUDA build of torch"
    return tuple(
        trial.model_copy(update={"status": "insufficient", "required": True, "cause": "", "fix": fix})
        for trial in trials
    )


def _cheap(trials: tuple[Trial, ...]) -> tuple[Check[Any], ...]:
    """What can still be asked after a failed batch: of its rows, and of the network if its loss is sound on them."""
    train = next(trial for trial in trials if trial.check == "one_batch.train")
    sound = train.status == "pass" or train.code == one_batch.NO_UPDATE
    return (*inputs.CHECKS, *wiring.CHECKS, *start.CHECKS) if sound else inputs.CHECKS


def _ended(
    job: PreflightJob, sample: Sample, trials: tuple[Trial, ...], why: str, fields: dict[str, Any]
) -> PreflightResult:
    """The answer of a battery that ended early: what it did not come to is untried, which stops the step."""
    done = {trial.check for trial in trials}
    rest = (check for check in (*WORKER_CHECKS, *_own(job, sample)) if check.id not in done)
    trials += tuple(untried_as_declared(check, why, job.claims.not_applicable) for check in rest)
    trials += untried_trainer(job, why)
    return PreflightResult(seconds=None, trials=trials, untried=why, ended_early=True, **fields)


def _tried(
    job: PreflightJob,
    sample: Sample,
    device: str,
    checks: tuple[Check[Any], ...],
    trial_subject: Any,
    announced: str = "",
) -> tuple[Trial, ...]:
    """Say the families, but for one that is told already, and try the checks."""
    for family in dict.fromkeys(check.family for check in checks if check.family != announced):
        say(f"preflight: {family.replace('_', ' ')}")
    return run_checks(
        checks,
        trial_subject,
        device=device,
        not_applicable=job.claims.not_applicable,
        describe=lambda error: _describe(error, job),
    )


def _own(job: PreflightJob, sample: Sample) -> tuple[Check[Any], ...]:
    return own_checks(sample.task, sensitive=bool(job.rows.sensitive_features))


def _describe(error: BaseException, job: PreflightJob) -> str:
    return error_line(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))
