"""The device that preflight tries a use case on, and the CPU where CUDA comes to its end there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from trainworthy.lifecycle.error_causes import ended_its_device
from trainworthy.lifecycle.errors import TrainingError, TrainworthyError
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import PreflightJob, QuickJob
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.task import line_of

Job = TypeVar("Job", PreflightJob, QuickJob)
ENDED = (
    "a kernel failed its own check on the GPU (device-side assert), after which CUDA computes nothing more in a "
    "process; usual are a class, label or token number out of range, and a loss that wants numbers from 0 to 1"
)


def on_device(job: Job, attempt: Callable[[Job, str], PreflightResult]) -> PreflightResult:
    """What `attempt` finds on the job's device; on the CPU, in a new process, if a kernel ends CUDA in this one.

    The CPU raises what a GPU's kernel asserts, with the line and the value. What it passes is not shown for the GPU.
    """
    # A job for CUDA is tried on the CPU where there is no GPU, and host.py says what that does not clear.
    device = choose_device("auto" if job.device == "cuda" else job.device)
    try:
        return attempt(job, device)
    except Exception as error:
        if device == "cpu" or not ended_its_device(error):
            raise
    say(f"preflight: {ENDED}; once more on the CPU")
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        result = process.submit(_on_cpu, attempt, job.model_copy(update={"device": "cpu"})).result()
    note = f"{ENDED}; what is said here was found on the CPU"
    return result.model_copy(update={"untried": "; ".join(words for words in (note, result.untried) if words)})


def _on_cpu(attempt: Callable[[Job, str], PreflightResult], job: Job) -> PreflightResult:
    """The attempt on the CPU; what its code raises is told with its line, since no traceback comes back."""
    try:
        return attempt(job, "cpu")
    except TrainworthyError:
        raise
    except Exception as error:
        raise TrainingError(
            f"{type(error).__name__}: {error}", value=line_of(error, Path(job.use_case_folder)), fix="correct that line"
        ) from None
