"""The frozen records that data flows through: read this first.

dataset → snapshot → preflight → smoke, pilot, full → evaluation → promotion; each step writes one
record that names, by sha256, the records it was made from. Records are JSON and written once. A
record's identity says what it is (identity.py), its sha256 that nobody changed it, its provenance
how it came about. Paths are relative to the state folder. Units are in the names.

A record is a head, which every record has (`Record`), and a body, which its step found (`SnapshotBody` and the like).
In JSON the two are one flat object. What a training measures of itself stands in training_figures.py, what a benchmark
measures in figures.py, and by what in suite.py.
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
from trainworthy.lifecycle.protocol.suite import ChangedLimit, Looks, Suite
from trainworthy.lifecycle.protocol.training_figures import Alarm as Alarm  # It and CurvePoint are read from here, too.
from trainworthy.lifecycle.protocol.training_figures import (
    Attempt,
    Diagnosis,
    SeedResult,
    StageSeconds,
    TrainingFigures,
)
from trainworthy.lifecycle.protocol.training_figures import CurvePoint as CurvePoint
from trainworthy.lifecycle.spec.frozen import Frozen

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
    """What a step used. USD is wall_seconds at the SKU's price, without machines that an attempt lacked (meter.py).

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


# In Verdict.held_back_by, behind a reason that holds back less than the decision does.
ALONE = "this alone would allow shadow"


class VerdictBody(Body):
    """Whether the model is worth shipping, why, and what the answer binds.

    `champion` is the version that was live before the verdict, `compared_with` the one that the model met:
    a champion that is judged again meets the one that it replaced.
    `slices` are those that decide, with the gain over the champion, and `answers` both models' answers row by row.
    `serving` is what the model takes to be served beside the one it met, empty where it met none.
    `changed_limits` are what the suite declares otherwise than for the verdict before; `blind_spots` the evaluation's,
    with the champion's excess; `champion_figures` what the model compared with measures on the same rows,
    `earlier_champions` how it and those before it do today.
    `codes` are those of the reasons, in their order (guardrail.broken, champion.not_shown); a verdict from before has
    none.
    `headline` stands beside the decision where that alone would say too much; empty where it would not.
    `held_back_by` are the reasons that allow less than promote, each with what it lacks, `measure_again` what of it the
    same command measures anew: it hangs on the clock.
    `decides` is the operating point that is frozen in the registered model; None where it gives answers alone.
    `binds` holds the sha256 of model files, decision, dataset, split, suite, contract, code and environment;
    `step_costs` what each step of this run cost (0 where a step was reused), `model_cost` what the
    model cost until it was judged, whichever run paid.
    """

    decision: Literal["promote", "shadow", "reject"]
    reasons: tuple[str, ...]
    codes: tuple[str, ...] = ()
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
    def held_back_codes(self) -> tuple[str, ...]:
        """The codes of what allows less than promote."""
        return self.codes[: len(self.held_back_by)]

    @property
    def of_champion(self) -> bool:
        """True if the artifact is the champion's under another decision, and so met what the champion replaced."""
        met = self.compared_with is not None or self.first_model
        return met and self.champion not in (None, self.model_version, self.compared_with)


class Verdict(VerdictBody, Record):
    """Promotion's record."""

    kind: Literal["promotion"] = "promotion"  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def total_cost(self) -> Cost:
        """The cost of the model: of all steps that it was made from and of this verdict, whichever run paid."""
        return self.model_cost + self.cost


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
