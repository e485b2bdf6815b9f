"""The frozen records that data flows through: read this first.

dataset → snapshot → preflight → smoke, pilot, full → evaluation → promotion; each step writes one
record that names, by sha256, the records it was made from. Records are JSON and written once. A
record's identity says what it is (identity.py), its sha256 that nobody changed it, its provenance
how it came about. Paths are relative to the state folder. Units are in the names.

A record is a head, which every record has (`Record`), and a body, which its step found (`SnapshotBody` and the like).
In JSON the two are one flat object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr

from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.figures import (
    Behaviour,
    BenchmarkFigures,
    BlindSpot,
    Comparison,
    Estimate,
    ModelFigures,
    SliceResult,
)
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.training import Action

Step = Literal["dataset", "snapshot", "preflight", "smoke", "pilot", "full", "evaluation", "promotion"]
STEPS: tuple[Step, ...] = ("dataset", "snapshot", "preflight", "smoke", "pilot", "full", "evaluation", "promotion")
STAGES: tuple[Step, ...] = ("smoke", "pilot", "full")
# Which records a step is made from, nearest first.
PARENTS: dict[Step, tuple[Step, ...]] = {
    "dataset": (),
    "snapshot": ("dataset",),
    "preflight": ("snapshot",),
    "smoke": ("preflight", "snapshot"),
    "pilot": ("smoke", "snapshot"),
    "full": ("pilot", "snapshot"),
    "evaluation": ("full", "snapshot"),
    "promotion": ("evaluation", "full", "preflight", "snapshot", "dataset"),
}


FrozenT = TypeVar("FrozenT", bound=Frozen)


def joined(kind: type[FrozenT], *parts: Frozen) -> FrozenT:
    """A value of a type that inherits from those of the parts, each of its fields as the part has it."""
    return kind(**{name: value for part in parts for name, value in part})


def part_of(whole: FrozenT, kind: type[FrozenT]) -> FrozenT:
    """The fields that a value has from `kind`, one of the types that its own inherits from."""
    return kind(**{name: getattr(whole, name) for name in kind.model_fields})


class Cost(Frozen):
    """What a step used. USD is wall_seconds at the SKU's price (cost/meter.py).

    `queue_seconds` is how long it waited for a run that did the same work; neither in wall_seconds nor in USD.
    """

    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    usd: float = 0.0
    queue_seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            gpu_seconds=self.gpu_seconds + other.gpu_seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            wall_seconds=self.wall_seconds + other.wall_seconds,
            usd=self.usd + other.usd,
            queue_seconds=self.queue_seconds + other.queue_seconds,
        )


class Provenance(Frozen):
    """How a record came about. None of this is identity."""

    git_commit: str | None
    git_dirty: bool | None
    code_sha256: str
    environment_sha256: str
    seeds: tuple[int, ...] = ()
    device: str = "host"
    run_id: str
    created_at: str


class StoredFile(Frozen):
    """A file below the state folder, with the hash of its bytes."""

    path: str
    sha256: str
    bytes: int


class StoredTree(Frozen):
    """Files that a record does not name one by one: how many, their bytes together, the hash of names and contents."""

    files: int
    bytes: int
    sha256: str


@dataclass(frozen=True, eq=False)
class Written:
    """The bytes that a record was read from, and the hash of what it is dumped to as long as nobody changes it.

    It is no part of what a record says: any is equal to any other, and to none.
    """

    content: bytes
    form_sha256: str

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Written)

    def __hash__(self) -> int:
        return 0


# Of what is written now. 2: records say their form, alarms the rule that names their cause, and trials a code.
FORM = 2


class Record(Frozen):
    """The head of every record: what it is, what it was made from, how, for how much, and whether its gate passed.

    `task` is the kind of task of its use case; records of before there were kinds are about binary labels. `form` is
    that of the JSON: 1 says nothing of it, and loads for ever.
    """

    _written: Written | None = PrivateAttr(default=None)

    kind: Step
    use_case: str
    parents: dict[str, str]
    identity: str
    provenance: Provenance
    cost: Cost
    checks: tuple[CheckResult, ...] = ()
    task: str = "binary"
    form: int = 1

    @property
    def passed(self) -> bool:
        """True if no check stops the step."""
        return not stopping(self.checks)

    @property
    def written(self) -> Written | None:
        """What it was read from; None of one that was made. It comes along where a copy is changed."""
        return self._written

    def with_written(self, written: Written) -> Self:
        """The same record, read from these bytes."""
        copy = self.model_copy()
        copy._written = written
        return copy


class Body(Frozen):
    """What a step found, as its record has it beside the head."""


class StoppedStep(Record):
    """A step that ended without a result of its own kind: what was wrong, and what it cost all the same."""

    error: str

    @property
    def passed(self) -> bool:
        """Never."""
        return False


class Backfill(Frozen):
    """A declared change of rows that an earlier version, `of`, had published: in whose words why."""

    of: str
    reason: str = Field(pattern=r"^[^\n\r]{1,300}$")

    @property
    def told(self) -> str:
        """The sentence that a check, a verdict and a report give."""
        return f"declared backfill of {self.of}: {self.reason}"


class DatasetBody(Body):
    """A published version of a dataset, with its bytes at `path`, checked against both hashes.

    `tree` are the files that rows name, below `path`; a record of before it names them among `files`.
    """

    name: str
    revision: str
    dvc_hash: str
    content_hash: str
    rows: int
    path: str
    files: tuple[StoredFile, ...]
    backfill: Backfill | None = None
    tree: StoredTree | None = None


class DatasetVersion(DatasetBody, Record):
    """The dataset's record."""

    kind: Literal["dataset"] = "dataset"  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def file_count(self) -> int:
        """How many files it holds, those that rows name among them."""
        return len(self.files) + (self.tree.files if self.tree else 0)


class Split(Frozen):
    """One split of a snapshot.

    `start` and `end` are the first and last value of the split column; of a split that time does not order,
    the first and last prediction time, empty where the rows hold none. `positives` are the rows of label 1, None where
    the label is no event; `labels` then says in words what the labels are.
    """

    name: str
    file: StoredFile
    rows: int
    positives: int | None
    labels: str = ""
    groups: int
    start: str
    end: str


class SnapshotBody(Body):
    """Contract-validated, labelled and split rows; immutable, addressed by content.

    `excluded_share` is the share of rows without a label: it is not known at prediction time which
    rows these are, so it is reported. `benchmark` names the rows of that split. `contract` is the file of the contract
    that judged the rows (contract/kept.py), None in records of before it was kept.
    """

    content_hash: str
    contract_sha256: str
    label_sha256: str
    label: str
    feature_columns: tuple[str, ...]
    rows: int
    excluded_rows: int
    excluded_share: float
    benchmark: str
    splits: dict[str, Split]
    contract: StoredFile | None = None


class Snapshot(SnapshotBody, Record):
    """The snapshot's record."""

    kind: Literal["snapshot"] = "snapshot"  # pyright: ignore[reportIncompatibleVariableOverride]


class Forecast(Frozen):
    """A forecast with the interval it is expected to lie in; compared later with what happened."""

    name: str
    unit: str
    value: float
    low: float
    high: float


class PreflightBody(Body):
    """What the stages would need, forecast before they start; None where it could not be measured."""

    memory_bytes: Forecast | None
    seconds: Forecast | None
    cost_usd: Forecast | None


class PreflightReport(PreflightBody, Record):
    """Preflight's record."""

    kind: Literal["preflight"] = "preflight"  # pyright: ignore[reportIncompatibleVariableOverride]


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


class DataCurve(Frozen):
    """What more rows may buy, by the validation losses of the stages so far, in the unit of the loss of a row.

    `gain` is by how much twice the rows of this stage lower the loss, `full_loss` what full is expected to reach,
    `usd` what that costs: at the pilot full itself, after full a training on twice its rows. All are None where the
    losses cannot tell, and `told` says why.
    """

    told: str
    gain: Forecast | None = None
    full_loss: Forecast | None = None
    usd: Forecast | None = None


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


class TrainingFigures(Frozen):
    """What a training measured of itself: the worker's answer has it, and the stage's record keeps it.

    `prefix_sha256` is the hash of the parameters after `prefix_steps` updates, which an equal rerun must meet. `curve`
    is the training forward's loss; `monitored` what was scored beside it: batches in evaluation mode, the reserve,
    slices. Of the steps those after `first_step` are the stage's own, None where it was not recorded: above 0 where it
    goes on from the stage before. `alarms` are the monitors'.
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


# A part of a training that can be exchanged for one that is known to work, the smallest first.
Part = Literal["precision", "regularization", "loss", "recipe", "network", "inputs", "rows"]


class Exchange(Frozen):
    """One part of a training exchanged for a standard one, and the training made again.

    `loss` is the kind's loss of the validation rows then, and `gain` what the exchange lowers it by, paired by row and
    by group. `recovers`: the gain exceeds twice its standard error, and is large enough to matter. `code` says why a
    part was not tried, and `told` what it was exchanged for, or more of why. It `contains` parts that had to be
    exchanged with it.
    """

    part: Part
    status: Literal["recovers", "no_gain", "not_tried"]
    loss: float | None = None
    gain: Estimate | None = None
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


class StageFindings(Frozen):
    """What a stage says of its trainings: which of them counts, where its files lie, what it cost and spared.

    `training_run` is made at smoke and carried on. `artifact` is only set by full. `metrics` are measured on the
    validation split. `seconds` is None in records of before it was measured. Of several trainings, `trained`, `seed`
    names the one that counts, and all that is one training's is its. `avoided_usd` is what the stages would have cost
    that a stop spared. `attempts` ended before the one that gave the answer. `left_out_steps` were planned, and all its
    trainings together ended before them. `diagnosis` is there where the stage's checks stopped it and parts of the
    training could be exchanged.
    """

    training_run: str
    fraction: float
    seed: int
    checkpoint: str | None
    checkpoint_sha256: str | None
    artifact: str | None = None
    metrics: dict[str, float]
    seconds: StageSeconds | None = None
    trained: tuple[SeedResult, ...] = ()
    data_curve: DataCurve | None = None
    avoided_usd: Forecast | None = None
    attempts: tuple[Attempt, ...] = ()
    left_out_steps: int = 0
    diagnosis: Diagnosis | None = None


class StageBody(StageFindings, TrainingFigures, Body):
    """One stage of training: the figures of the training that counts, and what the stage says of it."""


class StageReport(StageBody, Record):
    """A stage's record."""

    kind: Literal["smoke", "pilot", "full"]  # pyright: ignore[reportIncompatibleVariableOverride]


class Suite(Frozen):
    """What models are measured by: rows, metrics, slices and limits under a name and a version.

    `rows` is the sha256 of the benchmark's file, `label` that of the label's definition, `code` that of the modules
    that answer and measure, `files` those of the files that slices and metrics are of. `declared` is the section
    benchmark of use_case.yaml. `sha256` is over all of them: two models are compared on one suite.
    """

    name: str
    version: int
    rows: str
    label: str
    code: str
    files: dict[str, str]
    declared: dict[str, Any]
    sha256: str


class ChangedLimit(Frozen):
    """Something of a suite that is declared otherwise than for the verdict before; `by` whom, as git has it.

    The values are JSON; null for what is not there.
    """

    key: str
    before: str
    now: str
    by: str


class Looks(Frozen):
    """How many different models were measured on the rows of a suite, this one among them."""

    models: int
    since: str


class BenchmarkAnswers(Frozen):
    """Which artifact answered, which benchmark, where its answers lie, and how long one takes.

    `thresholds` are from which probability on each model's answer counts as 1, where decisions are declared. `suite`
    and `looks` are None in records of before a suite was a thing of its own.
    """

    benchmark: str
    predictions: StoredFile
    latency_ms: float
    artifact: str
    artifact_sha256: str
    thresholds: dict[str, float] = Field(default_factory=dict)
    suite: Suite | None = None
    looks: Looks | None = None


class EvaluationBody(Behaviour, BenchmarkAnswers, BenchmarkFigures, Body):
    """The candidate and its baselines on the benchmark, scored from the exported artifact."""


class EvaluationReport(EvaluationBody, Record):
    """The evaluation's record."""

    kind: Literal["evaluation"] = "evaluation"  # pyright: ignore[reportIncompatibleVariableOverride]


class Control(Frozen):
    """One of the five controls (dataset, benchmark, cost, reproducibility, deployment), or a comparison."""

    name: str
    status: Literal["pass", "fail", "insufficient"]
    reason: str


class EarlierChampion(Frozen):
    """A champion of before: the primary metric by which it was promoted, `then`, and on this benchmark, `now`.

    `reason` says why there is none of now. Both are of different rows, so that their difference is no ageing alone.
    """

    version: str
    promoted: str
    metric: str
    then: Estimate | None = None
    now: Estimate | None = None
    reason: str = ""


class VerdictBody(Body):
    """Whether the model is worth shipping, why, and what the answer binds.

    `champion` is the version that was live before the verdict, `compared_with` the one that the model met:
    a champion that is judged again meets the one that it replaced.
    `slices` are those that decide, with the gain over the champion, and `answers` both models' answers row by row.
    `serving` is what the model takes to be served beside the one it met, empty where it met none.
    `changed_limits` are what the suite declares otherwise than for the verdict before; `blind_spots` the evaluation's,
    with the champion's excess; `champion_figures` what the model compared with measures on the same rows,
    `earlier_champions` how it and those before it do today.
    `headline` stands beside the decision where that alone would say too much; empty where it would not.
    `held_back_by` are the reasons that allow less than promote, each with what it lacks, `measure_again` what of it the
    same command measures anew: it hangs on the clock.
    `decides` is the operating point that is frozen in the registered model; None where it gives answers alone.
    `binds` holds the sha256 of model files, decision, dataset, split, suite, contract, code and environment;
    `step_costs` what each step of this run cost (0 where a step was reused), `model_cost` what the
    model cost in all.
    """

    decision: Literal["promote", "shadow", "reject"]
    reasons: tuple[str, ...]
    headline: str = ""
    held_back_by: tuple[str, ...] = ()
    controls: tuple[Control, ...]
    comparisons: tuple[Comparison, ...]
    slices: tuple[SliceResult, ...] = ()
    answers: StoredFile | None = None
    serving: tuple[ServingFigure, ...] = ()
    changed_limits: tuple[ChangedLimit, ...] = ()
    blind_spots: tuple[BlindSpot, ...] = ()
    champion_figures: ModelFigures | None = None
    earlier_champions: tuple[EarlierChampion, ...] = ()
    model_name: str
    model_version: str
    decides: OperatingPoint | None = None
    champion: str | None
    compared_with: str | None = None
    first_model: bool
    evaluation_identity: str
    evidence: dict[str, Any]
    measure_again: tuple[str, ...] = ()
    binds: dict[str, str]
    step_costs: dict[str, Cost]
    model_cost: Cost
    previous_verdict_sha256: str | None

    @property
    def of_champion(self) -> bool:
        """True if the artifact is the champion's under another decision, and so met what the champion replaced."""
        met = self.compared_with is not None or self.first_model
        return met and self.champion not in (None, self.model_version, self.compared_with)


class Verdict(VerdictBody, Record):
    """Promotion's record."""

    kind: Literal["promotion"] = "promotion"  # pyright: ignore[reportIncompatibleVariableOverride]


RECORD_TYPES: dict[Step, type[Record]] = {
    "dataset": DatasetVersion,
    "snapshot": Snapshot,
    "preflight": PreflightReport,
    "smoke": StageReport,
    "pilot": StageReport,
    "full": StageReport,
    "evaluation": EvaluationReport,
    "promotion": Verdict,
}


def record_of(head: Record, body: Body) -> Record:
    """The record of the head's step that has this body."""
    return joined(RECORD_TYPES[head.kind], head, body)
