"""Runs a training's worker again from its checkpoint as long as that is worth it; failure.py decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import MOST_RESUMED, counted, in_words, pause_seconds, why_not_again
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import AnyResult, TrainResult
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.storage.checkpoints import reached_step


def supervise(
    job: TrainJob, attempt: Callable[[], AnyResult], tell: Callable[[str], None], seconds_left: float = math.inf,
    wait: Callable[[float], None] = time.sleep,
) -> AnyResult:  # fmt: skip
    """The answer of the first attempt that gives one, with those before it. Raises WorkerError when it gives up.

    A cancel is no end of this kind: it comes as an exception of its own and goes through.
    """
    attempts: list[Attempt] = []
    while True:
        before, meter = reached_step(Path(job.out)), Meter()
        try:
            answer = attempt()
        except WorkerError as error:
            attempts.append(
                Attempt(
                    cause=error.cause,
                    told=error.problem,
                    from_step=before,
                    to_step=reached_step(Path(job.out)),
                    seconds=meter.wall_seconds,
                )
            )
            why = why_not_again(attempts, seconds_left)
            if why is not None:
                raise _given_up(error, attempts, why) from None
            pause = pause_seconds(attempts[-1])
            after = f" after {pause:.0f} s" if pause else ""
            tell(f"{job.stage}: {in_words(attempts[-1])}; goes on from there{after}{_count(attempts)}")
            wait(pause)
        else:
            return _with_attempts(answer, attempts)


def _count(attempts: list[Attempt]) -> str:
    used = counted(attempts)
    return f" ({used} of {MOST_RESUMED} times)" if used else ""


def _given_up(error: WorkerError, attempts: list[Attempt], why: str) -> WorkerError:
    problem = f"{error.problem}; {why}" if why else error.problem
    earlier = "; before that: " + "; ".join(map(in_words, attempts[:-1])) if len(attempts) > 1 else ""
    return WorkerError(
        f"{problem}{earlier}",
        value=error.value, fix=error.fix, exit_code=error.exit_code, cause=error.cause, attempts=attempts,
        exception=error.exception,
    )  # fmt: skip


def _with_attempts(answer: AnyResult, attempts: list[Attempt]) -> AnyResult:
    if not attempts or not isinstance(answer, TrainResult):
        return answer
    # Of an attempt without an answer nobody knows when its device was idle.
    lost = sum(attempt.seconds for attempt in attempts) if answer.device == "cuda" else 0.0
    paused = sum(map(pause_seconds, attempts))
    notes = tuple(f"went on after: {in_words(attempt)}" for attempt in attempts)
    return answer.model_copy(
        update={
            "attempts": tuple(attempts),
            "notes": answer.notes + notes,
            "gpu_seconds": answer.gpu_seconds + lost,
            "seconds": answer.seconds.model_copy(update={"queue": answer.seconds.queue + paused}),
        }
    )
