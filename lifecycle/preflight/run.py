"""Preflight in the worker: one sample, then memory, every check in the order of its cost, time and leakage.

Memory comes first: a model that does not fit must not be built to find that out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lifecycle.data.rows import read_rows
from lifecycle.jobs import PreflightJob, PreflightResult
from lifecycle.leakage.in_training import leakage_in_training
from lifecycle.preflight import (
    configuration,
    determinism,
    inputs,
    learning_rate,
    one_batch,
    overfit,
    own,
    start,
    wiring,
)
from lifecycle.preflight.battery import run_checks, same_random_numbers
from lifecycle.preflight.check import Check, Trial, untried
from lifecycle.preflight.memory import StepMemory, forecast_memory, step_memory
from lifecycle.preflight.memory_forecast import MemoryForecast
from lifecycle.preflight.sample import Sample, draw_sample
from lifecycle.preflight.seconds import forecast_seconds
from lifecycle.progress import say
from lifecycle.records import Forecast
from lifecycle.task import told_of
from lifecycle.training.scoring import choose_device

# In the order of their cost. Those of SUBJECT see the subject alone, those of SAMPLE the job and its sample.
SUBJECT: tuple[Check[Any], ...] = (
    *configuration.CHECKS, *inputs.CHECKS, *wiring.CHECKS, *start.CHECKS, *determinism.CHECKS, *learning_rate.CHECKS,
)  # fmt: skip


def run_preflight(job: PreflightJob) -> PreflightResult:
    """Try the use case out. What one failed batch makes impossible is left unmeasured, never guessed."""
    device = choose_device(job.device)
    rows = read_rows(job.training_file, job.rows)
    sample = draw_sample(job, rows, device)

    def forecast(step: MemoryForecast | None) -> Forecast | None:
        return None if step is None else forecast_memory(job, sample, rows, step)

    def fits(step: MemoryForecast) -> bool:
        return forecast_memory(job, sample, rows, step).high <= job.memory_limit_bytes

    with same_random_numbers():
        step = step_memory(sample.subject, job.gpu_memory_gb, lambda error: _told(error, job), fits)
    if step.forecast is not None and not fits(step.forecast):
        return _ended((), "not tried, since the model may not fit into memory", device, forecast(step.forecast), step)
    trials = _tried(job, sample, device, one_batch.CHECKS, (job, sample))
    if any(trial.status in ("fail", "error") for trial in trials):
        return _ended(trials, "not tried, since one batch failed", device)
    trials += _tried(job, sample, device, SUBJECT, sample.subject)
    trials += _tried(job, sample, device, overfit.CHECKS, (job, sample))
    trials += _tried(job, sample, device, own.CHECKS, (job, sample))
    say("preflight: memory and time")
    # Once more, since what the trials imported stays in memory, as it will in a stage.
    memory = forecast(step.forecast)
    seconds = forecast_seconds(job, sample, rows)
    say("preflight: leakage")
    leakage = leakage_in_training(job, sample, rows)
    return PreflightResult(
        memory=memory, step_memory=step.forecast, gpus=step.gpus, seconds=seconds, trials=trials, leakage=leakage,
        untried=step.problem, device=device,
    )  # fmt: skip


def _ended(
    trials: tuple[Trial, ...], why: str, device: str, memory: Forecast | None = None, step: StepMemory | None = None
) -> PreflightResult:
    """The answer of a battery that ended early: what it did not come to is untried, which stops the step."""
    done = {trial.check for trial in trials}
    rest = (check for check in (*one_batch.CHECKS, *SUBJECT, *overfit.CHECKS) if check.id not in done)
    trials += tuple(untried(check, why) for check in rest)
    told = {} if step is None else {"step_memory": step.forecast, "gpus": step.gpus}
    return PreflightResult(memory=memory, seconds=None, trials=trials, untried=why, device=device, **told)


def _tried(
    job: PreflightJob, sample: Sample, device: str, checks: tuple[Check[Any], ...], seen: Any
) -> tuple[Trial, ...]:
    for family in dict.fromkeys(check.family for check in checks):
        say(f"preflight: {family.replace('_', ' ')}")
    return run_checks(
        checks, seen, device=device, not_applicable=job.claims.not_applicable, told=lambda error: _told(error, job)
    )


def _told(error: BaseException, job: PreflightJob) -> str:
    return told_of(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))
