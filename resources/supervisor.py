"""Runs a training's worker again from its checkpoint as long as that is worth it; failure.py decides.

What earlier runs of the same training spent of its tries counts on, so that a crash which ends Dagster's process too,
or which Dagster answers with another run, is given up at the same count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.earlier_ends import NO_EARLIER, EarlierEnds
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import MOST_RESUMED, counted, in_words, pause_seconds, why_not_again
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import AnyResult, TrainResult
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.storage.checkpoints import reached_step


def supervise(
    job: TrainJob, attempt: Callable[[], AnyResult], tell: Callable[[str], None], seconds_left: float = math.inf,
    wait: Callable[[float], None] = time.sleep, earlier: EarlierEnds = NO_EARLIER, again_by_itself: bool = False,
) -> AnyResult:  # fmt: skip
    """The answer of the first attempt that gives one, with those before it. Raises WorkerError when it gives up.

    A cancel is no end of this kind: it comes as an exception of its own and goes through. The ends in `earlier` runs
    count as well. A run that a person starts always has one try, since the cause may have been put right. With
    `again_by_itself`, where Dagster started the run because the one before failed, that try is refused if the earlier
    ends have used all of them up or the last one would happen again.
    """
    if earlier.attempts:
        if again_by_itself and why_not_again(earlier.attempts) is not None:
            raise _not_started(job, earlier)
        tell(f"{job.stage}: ends of earlier runs count, until this one gets past them: {earlier.in_words()}")
    attempts: list[Attempt] = []
    whole = Meter()
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
            why = why_not_again(attempts, seconds_left + whole.spared_seconds, earlier)
            if why is not None:
                raise _given_up(error, attempts, why, earlier) from None
            pause = pause_seconds(attempts[-1])
            after = f" after {pause:.0f} s" if pause else ""
            tell(f"{job.stage}: {in_words(attempts[-1])}; goes on from there{after}{_count(attempts, earlier)}")
            wait(pause)
        else:
            return _with_attempts(answer, attempts)


def _count(attempts: list[Attempt], earlier: EarlierEnds) -> str:
    used = counted((*earlier.still_counting(attempts), *attempts))
    return f" ({used} of {MOST_RESUMED} times)" if used else ""


def _given_up(error: WorkerError, attempts: list[Attempt], why: str, earlier: EarlierEnds) -> WorkerError:
    problem = f"{error.problem}; {why}" if why else error.problem
    before = "; before that: " + "; ".join(map(in_words, attempts[:-1])) if len(attempts) > 1 else ""
    fix = f"{error.fix}; {_one_try(earlier)}" if earlier.still_counting(attempts) else error.fix
    return WorkerError(
        f"{problem}{before}",
        value=error.value, fix=fix, exit_code=error.exit_code, cause=error.cause, attempts=attempts,
        exception=error.exception,
    )  # fmt: skip


def _not_started(job: TrainJob, earlier: EarlierEnds) -> WorkerError:
    last = earlier.attempts[-1]
    fix = (
        "put right what ended it (trainworthy attempts lists each end), then start the run yourself: "
        f"{_one_try(earlier)}"
    )
    return WorkerError(
        f"{job.stage} is not started again by itself: {earlier.in_words()}; the last time: {last.told}",
        value=job.out, fix=fix, exit_code=0, cause=last.cause,
    )  # fmt: skip


def _one_try(earlier: EarlierEnds) -> str:
    """What a run is given that somebody starts."""
    return (
        f"a run that is started by hand has one try, and all of them again once it gets past step {earlier.reached}; "
        "other values, code or data begin anew"
    )


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
