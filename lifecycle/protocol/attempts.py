"""Starts of workers: whom each is charged to, and how it ended. resources/attempt_table.py keeps them.

Nothing of an attempt is ever changed: it is entered, gives signs of life, and ends once. Times are Unix seconds of the
machine that wrote them.
"""

from __future__ import annotations

from typing import Literal

from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.lifecycle.spec.frozen import Frozen

# `lost`: its process was gone, and somebody else wrote so.
AttemptOutcome = Literal["answered", "failed", "cancelled", "lost"]


class ChargedTo(Frozen):
    """Who asked for a worker: a step of a run, by its identity, and what its machine costs.

    `dataset` is the version, such as `flights@v10`. A rollback is the step `rollback`; it has no dataset and no price.
    """

    run_id: str
    use_case: str
    step: str
    identity: str
    dataset: str = ""
    sku: str = ""
    usd_per_hour: float = 0.0


class Process(Frozen):
    """A process by its number, which means something in the `pid_space` of its `host` alone, and by its start."""

    host: str
    pid_space: str
    pid: int
    started: float


class StartedAttempt(Frozen):
    """A worker that is started. `process` is the one that waits for it: if that is gone, so is the worker.

    `launcher` is what started it, `device` what it was asked to use, `world_size` the processes that work together.
    `stage` and `from_step`, the newest checkpoint's step, are a training's; None for a question. Of a seed that is not
    the declared one the stage is named as its folder, `full_seed_3`.
    """

    attempt: str
    charged_to: ChargedTo
    job_kind: str
    stage: str | None
    launcher: str
    process: Process
    device: str
    world_size: int
    from_step: int | None
    started_at: float


class EndedAttempt(Frozen):
    """How an attempt ended, after `seconds`; of a lost one these are up to its last sign of life.

    `cause` is the class of lifecycle/failure.py where the worker gave no answer, None where something else failed or
    ended it; `told` says it in words. `to_step` is the step of a training's newest checkpoint, None where nobody
    looked.
    """

    attempt: str
    outcome: AttemptOutcome
    ended_at: float
    seconds: float
    cause: Cause | None = None
    told: str = ""
    exit_code: int | None = None
    to_step: int | None = None


class AttemptRow(Frozen):
    """An attempt as the table has it. `last_sign` is its newest heartbeat or its start; `ended` None while it works."""

    started: StartedAttempt
    last_sign: float
    ended: EndedAttempt | None = None

    @property
    def seconds(self) -> float:
        """Until its end, or of an open one until its last sign of life."""
        return self.ended.seconds if self.ended else max(0.0, self.last_sign - self.started.started_at)

    @property
    def usd(self) -> float:
        """Its seconds at the price of its machine when it was started."""
        return self.seconds / 3600 * self.started.charged_to.usd_per_hour
