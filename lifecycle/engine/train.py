"""One stage of training, from job to answer, by our own loop or by the use case's own script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from trainworthy.lifecycle.engine.trainers.ranks import follow_script
from trainworthy.lifecycle.engine.trainers.stage import train_by_script
from trainworthy.lifecycle.engine.training.ranks.follow import follow
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.stage import train_by_loop
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult


def run_stage(
    job: TrainJob,
    should_stop: Callable[[], bool] = lambda: False,
    forward: Callable[[str], None] | None = None,
    spent: Mapping[int, float] | None = None,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train the stage, resuming from its newest checkpoint. `spent` are seconds before this call, by part of the clock.

    With `ranks` as the first of them; the others follow. Raises PreemptedError, CheckpointError,
    DatasetError, UseCaseError if the code changes meanwhile, and TrainingError if a script breaks the contract.
    """
    with closing(Clock.open(Path(job.out) / "seconds.bin", spent or {})) as seconds:
        if job.trainer is None:
            return train_by_loop(job, seconds, should_stop, forward, ranks)
        return train_by_script(job, seconds, should_stop, forward, ranks)


def follow_stage(job: TrainJob, ranks: Ranks) -> None:
    """Train the stage as another rank than the first. Raises what run_stage does."""
    if job.trainer is None:
        follow(job, ranks)
    else:
        follow_script(job, ranks)
