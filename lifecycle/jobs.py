"""What the worker is asked to do, and what it answers. Both travel as JSON files.

The worker is the only process that runs a use case's code and torch. It reads one job, writes its
answer to `result.json` in the job's `out` folder, and exits 0; see worker.py for the other codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from lifecycle.golden import GoldenAnswers
from lifecycle.latency import Latency
from lifecycle.leakage.finding import Leak
from lifecycle.preflight.check import Trial
from lifecycle.preflight.claims import PreflightSpec
from lifecycle.preflight.memory.memory_forecast import GpuFit, MemoryForecast
from lifecycle.preflight.throughput.duration import RunTime, StepTime
from lifecycle.records import Alarm, Attempt, CurvePoint, Estimate, Forecast, Frozen, StageSeconds, StoredFile
from lifecycle.tasks import Kind, kind_of
from lifecycle.tasks.kind import COPY_OF_CLASSES
from lifecycle.tasks.target import Target
from lifecycle.tasks.words import Words
from lifecycle.training.checkpoints.interval import Interruptions
from lifecycle.training_spec import StagesSpec, TrainingSpec
from lifecycle.use_case import SplitSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class Rows(Frozen):
    """Which columns of the snapshot's Parquet files mean what; values of `sensitive` ones never ship.

    `weight` weighs training rows, and only these. `target` says what the label is and what the model answers. Values of
    the columns `files` are paths below `files_root`, the dataset's absolute folder; rows hold them as absolute `Path`s.
    `label_file` is the one of them that the label is made of.
    """

    features: tuple[str, ...]
    label: str
    group: str
    keys: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    weight: str | None = None
    target: Target = Target()
    files: tuple[str, ...] = ()
    label_file: str | None = None
    files_root: str = ""

    @property
    def kind(self) -> Kind:
        """What is predicted."""
        return kind_of(self.target)

    def labels(self, rows: pd.DataFrame) -> np.ndarray:
        """The labels of rows that hold the label's column, (N, ...) as the kind has them. Raises EvaluationError."""
        return self.kind.checked_labels(rows[self.label].to_numpy())

    def truth(self, rows: pd.DataFrame) -> np.ndarray:
        """All that is known of their labels, (N, ...), of their files where they have some. Raises EvaluationError."""
        return self.kind.truth(rows[self.label_file or self.label].to_numpy())

    @property
    def sensitive_features(self) -> tuple[str, ...]:
        """The sensitive columns that model.py sees."""
        return tuple(name for name in self.features if name in self.sensitive)


class _Job(Frozen):
    """Common to all jobs: the code of a use case, where the answer goes, and on which device to run."""

    use_case_folder: str
    out: str
    device: Literal["auto", "cpu", "cuda"]


class _RowsJob(_Job):
    """A job that reads rows of the snapshot; `loaders` is compute.loaders."""

    rows: Rows
    loaders: int | None = None


class CheckpointRef(Frozen):
    """A checkpoint folder and the hash of its manifest."""

    path: str
    sha256: str


class KeptFeatures(Frozen):
    """Folder where prepared features are kept (training/rows/features.py); the hash of the training split's bytes."""

    folder: str
    split_sha256: str


class TrainJob(_RowsJob):
    """Train one stage. `identity` names what is trained: a checkpoint of another identity is refused.

    `start` continues from the checkpoint of the stage before (mode continue). `stop_after_steps`
    ends early and changes nothing else: the rerun that reproducibility asks for. With `kept_features` features are
    prepared once for equal rows and code. `ends_at` is the Unix time at which the run's budget is spent. Windows of the
    curve are also told by value of the `slices` columns. `interruptions` decide how often checkpoints are written, and
    no result. `frozen` are patterns of parameters that are declared not to train, `trainer` is the use case's own
    training script, None for our loop. Of `unreviewed` features nobody has said when they are known: a trained stage
    is asked what they do for it.
    """

    kind: Literal["train"] = "train"
    identity: str
    stage: Literal["smoke", "pilot", "full"]
    stages: StagesSpec
    training: TrainingSpec
    hyperparameters: dict[str, Any]
    training_file: str
    validation_file: str
    calibration_file: str
    start: CheckpointRef | None = None
    stop_after_steps: int | None = None
    kept_features: KeptFeatures | None = None
    ends_at: float | None = None
    slices: tuple[str, ...] = ()
    interruptions: Interruptions = Interruptions()
    frozen: tuple[str, ...] = ()
    trainer: str | None = None
    unreviewed: tuple[str, ...] = ()


class PreflightJob(_RowsJob):
    """Forecast and try out what the training will do, on a small sample.

    `data_folders` hold the rows of datasets and snapshots: model.py has no business there.
    `gpu_memory_gb` is the memory of one GPU, by SKU; `durable` the folder that checkpoints will be copied to. `metrics`
    and `baselines` of the use case's own are called once, metrics with `metric_columns`.
    """

    kind: Literal["preflight"] = "preflight"
    training: TrainingSpec
    stages: StagesSpec
    hyperparameters: dict[str, Any]
    training_file: str
    validation_file: str
    claims: PreflightSpec
    split: SplitSpec
    prediction_time: str | None
    data_folders: tuple[str, ...]
    memory_limit_bytes: int
    gpu_memory_gb: dict[str, float] = Field(default_factory=dict)
    trainer: str | None = None
    durable: str | None = None
    metrics: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    metric_columns: tuple[str, ...] = ()


class PredictJob(_RowsJob):
    """Score rows with an artifact, by the artifact's own code, and with baselines beside it.

    Baselines are fitted on `training_file` and, as the artifact was, calibrated on `calibration_file`; both are needed
    if there are any. The artifact alone also scores the rows of `reference_files`. `metrics` are the use case's own,
    whose figures of each row are written too; they see `metric_columns`. `weight` is the column that weighs the rows.
    With `latency_limit_ms`, a latency above it is measured again.
    """

    kind: Literal["predict"] = "predict"
    artifact: str
    artifact_sha256: str
    rows_file: str
    limit: int | None = None
    columns: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    metric_columns: tuple[str, ...] = ()
    weight: str | None = None
    training_file: str | None = None
    calibration_file: str | None = None
    baselines: tuple[str, ...] = ()
    reference_files: tuple[str, ...] = ()
    latency_limit_ms: float | None = None
    seed: int = 0


class FunctionsJob(_RowsJob):
    """Try the functions of model.py on rows that are made from contract.yaml: no data is read, nothing is trained.

    `training` is None where use_case.yaml has mistakes. `steps` are about those of the full stage, where it is known.
    With a `trainer`, model.py need not define the network and its loss.
    """

    kind: Literal["functions"] = "functions"
    hyperparameters: dict[str, Any]
    training: TrainingSpec | None = None
    steps: int = 1000
    claims: PreflightSpec = Field(default_factory=PreflightSpec)
    trainer: str | None = None


class VerifyJob(_Job):
    """Load an artifact as a service would and answer its golden requests."""

    kind: Literal["verify"] = "verify"
    artifact: str
    artifact_sha256: str


class ReplayJob(_Job):
    """Do the step of an incident again, from its checkpoint on, and look at all that it computes.

    `changed_code` lets another model.py do it than the one that was recorded.
    """

    kind: Literal["replay"] = "replay"
    incident: str
    changed_code: bool = False


class PackJob(_Job):
    """Write all that an incident's replay needs into the new folder `target`, for another machine."""

    kind: Literal["pack"] = "pack"
    incident: str
    target: str


AnyJob = Annotated[
    TrainJob | PreflightJob | PredictJob | VerifyJob | FunctionsJob | ReplayJob | PackJob, Field(discriminator="kind")
]


class JobFile(Frozen):
    """The content of job.json."""

    job: AnyJob


class Progress(Frozen):
    """How far a training lowered its own loss, on its own rows: from `first_loss`, the mean at its first weights.

    `fall` is that mean less the one of now, paired by row. The stage makes `share_of_full` of a whole training.
    `reweighted`: rows do not count alike in it, as they do in the curve. `untrained_loss` is the loss of the
    validation rows at the first weights of another seed: low where the model brings weights that were trained before.
    """

    first_loss: float
    fall: Estimate
    share_of_full: float = Field(gt=0, le=1)
    reweighted: bool = False
    untrained_loss: float


class Learned(Frozen):
    """Rise of the kind's loss of a row when answers are permuted within their group; `words` are the kind's.

    It survives a base rate that shifts between training and validation, which a comparison with the prior does not. Of
    the `network`; of a `reference`, the kind's linear model cross-fitted on as many validation rows as the stage has;
    of `stage_reference`, one fitted on the stage's rows. All are stretched alike, and standard errors resample groups.
    `own` is the network's on rows that it learned from, as a share of their own labels' entropy, None where they lie in
    too few groups.
    `beyond_linear` is the network's rise less the stage reference's, `below_linear` the stage reference's loss less the
    network's, both stretched. `label_entropy` is the loss of the validation
    rows' own best constant answer: what there is to explain. `network_loss` and `prior_loss` are the losses of the
    network and of the training rows' best constant answer.
    """

    network: Estimate
    reference: Estimate
    stage_reference: Estimate | None = None
    own: Estimate | None = None
    beyond_linear: Estimate | None = None
    below_linear: Estimate | None = None
    label_entropy: float
    network_loss: float
    prior_loss: float
    words: Words = Words()


class InputGain(Frozen):
    """What one input does: the network's AUC that is lost when its values are shuffled, and its own AUC alone.

    `lost` is None where there are too many inputs to shuffle each.
    """

    column: str
    lost: float | None
    alone: float


class UnreviewedInputs(Frozen):
    """What TrainJob.unreviewed do for the trained network: areas under the ROC curve on rows of the validation split.

    `auc` is the network's and `standard_error` its own; `auc_shuffled` what is left when the values of all these inputs
    are shuffled together; `auc_nulls` that of quick trees which see only whether each of them is null, None without
    nulls. `auc_expected` is what all inputs of the model would reach together if each added what it tells alone, 1
    where one of them is a file.
    `inputs` are the unreviewed ones, the strongest first, `count` all inputs of the model. From `copy_auc` on a
    score is as good as a copy of the label.
    """

    auc: float
    standard_error: float
    auc_shuffled: float
    auc_nulls: float | None
    auc_expected: float
    inputs: tuple[InputGain, ...]
    count: int
    copy_auc: float = COPY_OF_CLASSES.auc


class OwnTrainer(Frozen):
    """What could be seen of a training by the use case's own script, `file`.

    Whether it told its `gradients` and `weights`, and its optimizer, so that monitors looked `closer`; how many
    `checkpoints` it wrote. `asked_to_end` says why it was asked to end, if it made another update all the same.
    `unwatched`: it told more models than monitors are kept for. `unread_weights`: rows have weights, and it never read
    them.
    """

    file: str
    gradients: bool
    weights: bool
    checkpoints: int
    closer: bool = False
    asked_to_end: str = ""
    unwatched: bool = False
    unread_weights: bool = False


class TrainResult(Frozen):
    """Answer to a TrainJob. `ended` says what ended the training before its planned steps, if no alarm did.

    `first_step` is where it began: above 0 where it goes on from the stage before. `alarm` is the one that stopped it,
    `alarms` are all. `progress` is None where a script made the first weights. `adversarial`: some parameters learn to
    raise the loss that others learn to lower. `attempts` are those that ended before it; whoever started the worker
    adds them. `trainer` is None for our loop.
    """

    kind: Literal["train"] = "train"
    alarm: Alarm | None
    rows: int
    steps: int
    planned_steps: int
    first_step: int | None = None
    ended: Literal["", "early", "budget"] = ""
    resumed_from_step: int
    notes: tuple[str, ...] = ()
    parameters: int
    parameters_sha256: str
    prefix_steps: int
    prefix_sha256: str | None
    checkpoint: CheckpointRef | None
    metrics: dict[str, float]
    learned: Learned | None
    progress: Progress | None = None
    adversarial: bool = False
    curve: tuple[CurvePoint, ...]
    monitored: tuple[CurvePoint, ...] = ()
    seconds: StageSeconds
    artifact: str | None = None
    artifact_sha256: str | None = None
    device: str
    gpu_seconds: float
    attempts: tuple[Attempt, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    trainer: OwnTrainer | None = None
    unreviewed: UnreviewedInputs | None = None


class PreflightResult(Frozen):
    """Answer to a PreflightJob. What could not be tried is missing or None, and `untried` says why."""

    kind: Literal["preflight"] = "preflight"
    memory: Forecast | None
    step_memory: MemoryForecast | None = None
    gpus: tuple[GpuFit, ...] = ()
    seconds: Forecast | None
    step: StepTime | None = None
    time: RunTime | None = None
    trials: tuple[Trial, ...] = ()
    leakage: tuple[Leak, ...] = ()
    untried: str = ""
    device: str


class PredictResult(Frozen):
    """Answer to a PredictJob. `predictions` is Parquet: row, group, label, weight if rows have one, slice:<name>, and
    the answers of candidate and each baseline.

    `reference` is Parquet of the reference files' rows: group, candidate; None if none was named.
    `golden` are the artifact's own requests, answered again; None if it was written without.
    """

    kind: Literal["predict"] = "predict"
    predictions: StoredFile
    reference: StoredFile | None = None
    rows: int
    golden: GoldenAnswers | None
    latency: Latency
    device: str


class FunctionFault(Frozen):
    """One thing that is wrong with a function; `where` is a line, such as model.py:12 in predict."""

    where: str
    problem: str
    fix: str


class TriedFunction(Frozen):
    """What a function gave, and all that is wrong with it. `untried` says why it could not be tried."""

    name: str
    evidence: str = ""
    faults: tuple[FunctionFault, ...] = ()
    untried: str = ""


class FunctionsResult(Frozen):
    """Answer to a FunctionsJob, in the order in which the functions need each other."""

    kind: Literal["functions"] = "functions"
    functions: tuple[TriedFunction, ...]


class VerifyResult(Frozen):
    """Answer to a VerifyJob."""

    kind: Literal["verify"] = "verify"
    golden: GoldenAnswers
    load_seconds: float
    latency: Latency


class FirstBad(Frozen):
    """Where numbers that are not finite came from first.

    `before` are weights, rows and labels as they were, `norm` that of all gradients. `line` is model.py's, of the
    forward pass for an operation of backward too.
    """

    phase: Literal["before", "forward", "backward", "optimizer", "norm"]
    operation: str
    gave: str
    module: str
    line: str
    node: str
    evidence: str


class GuiltyRow(Frozen):
    """A row of the batch, by its number in the stage's rows and its key, and what makes it stand out."""

    row: int
    key: dict[str, str]
    told: str


class Compared(Frozen):
    """A figure of the step as it was recorded and as it came out again; `difference` is relative."""

    name: str
    recorded: str
    replayed: str
    equal: bool
    difference: float | None


class ReplayResult(Frozen):
    """Answer to a ReplayJob. `from_step` is the checkpoint's, and `agreed` how many of the recorded updates on the way
    had equal bits, of `on_the_way`.

    `elsewhere` says what the bits hang on and is different here. `layers` carry the gradient, `rows_told` says how the
    rows were found. Of a training by a script nothing is done again: `reproduced` is insufficient, `first_bad` None.
    """

    kind: Literal["replay"] = "replay"
    step: int
    from_step: int
    from_told: str
    reproduced: Literal["bit_for_bit", "within_tolerance", "not", "insufficient"]
    tolerance: str
    compared: tuple[Compared, ...]
    agreed: int
    on_the_way: int
    elsewhere: tuple[str, ...]
    first_bad: FirstBad | None
    rows: tuple[GuiltyRow, ...]
    rows_told: str
    layers: tuple[str, ...]
    notes: tuple[str, ...] = ()


class PackResult(Frozen):
    """Answer to a PackJob: the folder, and what of the incident it does not hold."""

    kind: Literal["pack"] = "pack"
    folder: str
    bytes: int
    updates: int
    left_out: tuple[str, ...]


AnyResult = Annotated[
    TrainResult | PreflightResult | PredictResult | VerifyResult | FunctionsResult | ReplayResult | PackResult,
    Field(discriminator="kind"),
]


class ResultFile(Frozen):
    """The content of result.json; `job_sha256` ties it to its job."""

    job_sha256: str
    result: AnyResult
