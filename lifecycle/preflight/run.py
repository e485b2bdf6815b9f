"""Preflight in the worker: one sample, then one batch, overfit, memory and time, in order of cost."""

from __future__ import annotations

from lifecycle.data.rows import read_rows
from lifecycle.jobs import PreflightJob, PreflightResult
from lifecycle.preflight.memory import forecast_memory
from lifecycle.preflight.one_batch import try_one_batch
from lifecycle.preflight.overfit import try_overfit
from lifecycle.preflight.sample import draw_sample
from lifecycle.preflight.seconds import forecast_seconds
from lifecycle.progress import say
from lifecycle.training.scoring import choose_device


def run_preflight(job: PreflightJob) -> PreflightResult:
    """Try the use case out. What one failed batch makes impossible is left unmeasured, never guessed."""
    device = choose_device(job.device)
    rows = read_rows(job.training_file, job.rows)
    sample = draw_sample(job, rows, device)
    say("preflight: one batch end to end")
    one_batch = try_one_batch(job, sample, device)
    if not one_batch.worked:
        return PreflightResult(memory=None, seconds=None, one_batch=one_batch, overfit=None, device=device)
    say("preflight: overfit ten batches, with zeroed inputs as control")
    overfit = try_overfit(job, sample, device)
    say("preflight: memory and time")
    return PreflightResult(
        memory=forecast_memory(job, sample, rows),
        seconds=forecast_seconds(job, sample, rows, device),
        one_batch=one_batch,
        overfit=overfit,
        device=device,
    )
