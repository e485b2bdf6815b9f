"""Preflight in the worker: one sample, then memory, one batch, overfit and time.

Memory comes first: a model that does not fit must not be built to find that out.
"""

from __future__ import annotations

from pathlib import Path

from lifecycle.data.rows import read_rows
from lifecycle.jobs import PreflightJob, PreflightResult
from lifecycle.leakage.in_training import leakage_in_training
from lifecycle.preflight.memory import forecast_memory, training_bytes
from lifecycle.preflight.one_batch import try_one_batch
from lifecycle.preflight.overfit import try_overfit
from lifecycle.preflight.sample import Sample, draw_sample
from lifecycle.preflight.seconds import forecast_seconds
from lifecycle.progress import say
from lifecycle.task import told_of
from lifecycle.training.scoring import choose_device


def run_preflight(job: PreflightJob) -> PreflightResult:
    """Try the use case out. What one failed batch makes impossible is left unmeasured, never guessed."""
    device = choose_device(job.device)
    rows = read_rows(job.training_file, job.rows)
    sample = draw_sample(job, rows, device)
    trained, problem = _training_bytes(job, sample)
    memory = None if trained is None else forecast_memory(job, sample, rows, trained)
    if memory is not None and memory.high > job.memory_limit_bytes:
        why = "not tried, since the model may not fit into memory"
        return PreflightResult(memory=memory, seconds=None, one_batch=None, overfit=None, untried=why, device=device)
    say("preflight: one batch end to end")
    one_batch = try_one_batch(job, sample, device)
    if not one_batch.worked:
        why = "one batch failed"
        return PreflightResult(memory=None, seconds=None, one_batch=one_batch, overfit=None, untried=why, device=device)
    say("preflight: overfit ten batches, with zeroed inputs as control")
    overfit = try_overfit(job, sample, device)
    say("preflight: memory and time")
    # Once more, since what the trials imported stays in memory, as it will in a stage.
    memory = None if trained is None else forecast_memory(job, sample, rows, trained)
    seconds = forecast_seconds(job, sample, rows, device)
    say("preflight: leakage")
    return PreflightResult(
        memory=memory,
        seconds=seconds,
        one_batch=one_batch,
        overfit=overfit,
        leakage=leakage_in_training(job, sample, rows, device),
        untried=problem,
        device=device,
    )


def _training_bytes(job: PreflightJob, sample: Sample) -> tuple[int | None, str]:
    """Bytes of a training step; None and the reason if the model cannot be followed without its values."""
    try:
        return training_bytes(job, sample), ""
    except Exception as error:
        # Whatever a use case's code raises; a real fault shows again in one_batch, with its part named.
        told = told_of(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))
        return None, f"the model could not be followed on tensors without values: {told}"[:500]
