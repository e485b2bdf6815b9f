"""What trainings measure of themselves, in records: curves, seconds, seeds, alarms, attempts, exchanged parts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.training import Action


class CurvePoint(Frozen):
    """Mean loss of a window of training steps that ends at `step`, every row counted once, with its standard error.

    Of `batches` in mode `training` it is the training forward's own loss before each update, dropout on: progressive
    validation in the first pass, training loss in later ones. Mode `evaluation` is without dropout and augmentation.
    `reserve` are rows that are never trained on. `slice` is a column and its value.
    """

    step: int
    rows: int
    loss: float
    standard_error: float
    learning_rate: float
    pass_number: int = Field(default=1, ge=1)
    mode: Literal["training", "evaluation"] = "training"
    scored: Literal["batches", "reserve"] = "batches"
    slice: str | None = None

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval, as if rows were independent."""
        return self.loss - 1.96 * self.standard_error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.loss + 1.96 * self.standard_error

    @property
    def figure(self) -> str:
        """What the loss may be called; only rows that no update has seen give a progressive one."""
        if self.scored == "reserve":
            return "reserve_loss"
        name = "progressive_loss" if self.pass_number == 1 else "training_loss"
        return name if self.mode == "training" else f"{name}_evaluated"


class StageSeconds(Frozen):
    """Where the worker's wall seconds of a stage went, over all its attempts.

    `start`: imports, rows, preprocessing, the checkpoint read. `queue`: waiting for another run's lock, or for storage
    that was away. `validation`: scores while training, progress, and the validation split. `skipped`: updates that a
    monitor's alarm kept from being applied. `replayed`: spent after the last checkpoint before an attempt ended or went
    back, and done again in `replayed_steps` steps.
    """

    start: float = 0.0
    queue: float = 0.0
    data: float = 0.0
    compute: float = 0.0
    checkpoint: float = 0.0
    validation: float = 0.0
    export: float = 0.0
    skipped: float = 0.0
    replayed: float = 0.0
    replayed_steps: int = 0

    @property
    def wall(self) -> float:
        """All of them."""
        return sum(self.by_part.values())

    @property
    def goodput(self) -> float:
        """Share of the wall time that moved the weights forward for good; 0 if no time was spent."""
        return self.compute / self.wall if self.wall > 0 else 0.0

    @property
    def by_part(self) -> dict[str, float]:
        """Seconds by what they were spent on."""
        return self.model_dump(exclude={"replayed_steps"})


class SeedResult(Frozen):
    """One of several trainings of a stage; the metrics are None if it ended before it was validated.

    `val_score` is the metric `score` of the network on the validation split. `validated` are the kind's metrics there
    of its calibrated answers, as the artifact gives them, empty of stages that make none. Records of before there were
    kinds of task have `val_auc` instead: `scored` reads both. `stopped_by` names the checks that would have stopped
    the stage if this training were the one that counts, `error` is what ended it without an answer.
    """

    seed: int
    val_loss: float | None
    val_auc: float | None = None
    val_score: float | None = None
    score: str = "auc"
    validated: dict[str, float] = Field(default_factory=dict)
    resumed_from_step: int
    stopped_by: tuple[str, ...] = ()
    error: str | None = None

    @property
    def scored(self) -> float | None:
        """The score, whichever form the record has."""
        return self.val_auc if self.val_score is None else self.val_score


class Alarm(Frozen):
    """Something that went wrong while a stage trained, and what was done about it.

    Seen at update `step`, so since update `onset`, both counted from 0; `count` times in a row, the last one at
    `last_step`. `rule` names the cause, empty without one. `row_keys` name rows of that batch by
    key, `where` parameters or modules. `incident` is the folder of what was recorded of it.
    """

    step: int
    onset: int
    monitor: str
    rule: str = ""
    severity: Literal["critical", "warning"]
    symptom: str
    evidence: str
    cause: str
    fix: str
    action: Action
    row_keys: tuple[dict[str, Any], ...] = ()
    where: tuple[str, ...] = ()
    incident: str | None = None
    count: int = 1
    last_step: int


Cause = Literal[
    "preempted", "killed", "out_of_memory", "bad_input", "bug", "disk_full", "storage", "storage_outage", "lease_lost",
    "hang",
]  # fmt: skip


class Attempt(Frozen):
    """A life of the worker that ended without an answer, and why (failure.py).

    The steps are those of the newest checkpoint before and after; 0 if there was none. Its seconds are in the cost.
    """

    cause: Cause
    told: str
    from_step: int
    to_step: int
    seconds: float


class MadeBy(Frozen):
    """From the update `first_step` on, so many processes made the training."""

    first_step: int
    processes: int


class TrainingFigures(Frozen):
    """What a training measured of itself: the worker's answer has it, and the stage's record keeps it.

    `prefix_sha256` is the hash of the parameters after `prefix_steps` updates, which an equal rerun must meet. `curve`
    is the training forward's loss; `monitored` what was scored beside it: batches in evaluation mode, the reserve,
    slices. Of the steps those after `first_step` are the stage's own, None where it was not recorded: above 0 where it
    goes on from the stage before. `alarms` are the monitors'. `made_by` tells each number of processes that made
    updates, the stage before included where it goes on from that; () where it was not recorded.
    """

    rows: int
    steps: int
    first_step: int | None = None
    resumed_from_step: int
    prefix_steps: int
    prefix_sha256: str | None
    parameters: int
    parameters_sha256: str | None
    artifact_sha256: str | None = None
    curve: tuple[CurvePoint, ...]
    monitored: tuple[CurvePoint, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    made_by: tuple[MadeBy, ...] = ()


# A part of a training that can be exchanged for one that is known to work, the smallest first.
Part = Literal["precision", "regularization", "loss", "recipe", "network", "inputs", "rows"]


class Exchange(Frozen):
    """One part of a training exchanged for a standard one, and the training made again.

    `loss` is the kind's loss of the validation rows then, and `gain` what the exchange lowers it by, paired by row and
    by group; `below_prior` is what that loss lies below the best constant answer's, None in records of before it was
    kept. `recovers`: both are more than chance gives the best of those compared, and large enough to matter. `code`
    says why a part was not tried, and `told` what it was exchanged for, or more of why. It `contains` parts that had to
    be exchanged with it.
    """

    part: Part
    status: Literal["recovers", "no_gain", "not_tried"]
    loss: float | None = None
    gain: Estimate | None = None
    below_prior: Estimate | None = None
    contains: tuple[Part, ...] = ()
    code: Literal["", "nothing_to_exchange", "not_exchangeable", "raised", "most_exchanges", "budget"] = ""
    told: str = ""


class Diagnosis(Frozen):
    """Which part of a training is `at_fault`: the one whose exchange recovers most, None where none recovers.

    All trainings make `updates` on as many `rows`, with one seed. `loss` is the kind's loss of the validation rows as
    the training is, `prior_loss` that of the training rows' best constant answer.
    """

    rows: int
    updates: int
    loss: float
    prior_loss: float
    exchanges: tuple[Exchange, ...]
    at_fault: Part | None
