"""What the worker is asked to do, as a JSON file; results.py has what it answers.

The worker is the only process that runs a use case's code and torch. It reads one job, writes its
answer to `result.json` in the job's `out` folder, and exits 0; see worker.py for the other codes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainworthy.lifecycle.hyperparameters import HyperparameterValues
from trainworthy.lifecycle.protocol.training_figures import Part
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, DecisionSpec
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.split import SplitSpec
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec
from trainworthy.lifecycle.spec.use_case import COLLECTIVE_TIMEOUT_SECONDS, Sharding

# Mean seconds between two interruptions of a machine, one's own among them: restarts, updates, a closed lid, memory
# that another process took. Servers stop far less often; too short a time costs only checkpoints, and these are capped.
MTBF_SECONDS = 12 * 3600.0
# On a spot machine no more work is lost than this: so long may a copy on durable storage be away.
DURABLE_SECONDS = 15 * 60.0


class Interruptions(Frozen):
    """How a machine may stop: its mean seconds between two stops, whether it is a spot machine.

    `durable` is a folder or s3://BUCKET/PREFIX that outlives it, to which checkpoints are copied.
    """

    mtbf_seconds: float = MTBF_SECONDS
    spot: bool = False
    durable: str | None = None


class Rows(Frozen):
    """Which columns of the snapshot's Parquet files mean what; values of `sensitive` ones never ship.

    `weight` weighs training rows, and only these. `target` says what the label is and what the model answers. Values of
    the columns `files` are paths below `files_root`, the dataset's absolute folder; rows hold them as absolute `Path`s.
    `label_file` is the one of them that the label is made of. `split_by_time` says that rows are split by time, and
    not by groups: a base rate may drift from group to group, so that what is learned is looked for within each.
    """

    features: tuple[str, ...]
    label: str
    group: str
    split_by_time: bool = True
    keys: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    weight: str | None = None
    target: Target = Target()
    files: tuple[str, ...] = ()
    label_file: str | None = None
    files_root: str = ""

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
    is asked what they do for it. With more than one of `processes` each has a share of every batch, and none waits
    longer than `collective_timeout_seconds` for another; `sharding` says whether each has the whole model. `split` is
    how the use case splits its rows, for a script that holds some out for itself; None for our loop.
    """

    kind: Literal["train"] = "train"
    identity: str
    stage: Literal["smoke", "pilot", "full"]
    stages: StagesSpec
    training: TrainingSpec
    hyperparameters: HyperparameterValues
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
    split: SplitSpec | None = None
    unreviewed: tuple[str, ...] = ()
    processes: int = Field(default=1, ge=1)
    sharding: Sharding = "none"
    collective_timeout_seconds: float = COLLECTIVE_TIMEOUT_SECONDS


class PreflightJob(_RowsJob):
    """Forecast and try out what the training will do, on a small sample.

    `data_folders` hold the rows of datasets and snapshots: model.py has no business there.
    `gpu_memory_gb` is the memory of one GPU, and `gpu_counts` how many a machine has, by SKU; `durable` is where
    checkpoints will be copied to. `metrics` and `baselines` of the use case's own are called once, metrics with
    `metric_columns`. `processes` are those that each training will be made by, on so many `nodes`, and `sharding` how
    they hold its model; with `least_nodes` it goes on with so few of them, each with as many processes.
    """

    kind: Literal["preflight"] = "preflight"
    training: TrainingSpec
    stages: StagesSpec
    hyperparameters: HyperparameterValues
    training_file: str
    validation_file: str
    claims: PreflightSpec
    split: SplitSpec
    prediction_time: str | None
    data_folders: tuple[str, ...]
    memory_limit_bytes: int
    gpu_memory_gb: dict[str, float] = Field(default_factory=dict)
    gpu_counts: dict[str, int] = Field(default_factory=dict)
    trainer: str | None = None
    durable: str | None = None
    metrics: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    metric_columns: tuple[str, ...] = ()
    processes: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    least_nodes: int | None = None
    sharding: Sharding = "none"


class QuickJob(_RowsJob):
    """Try what needs no training: configuration, inputs, wiring and start of preflight, on few rows.

    With `made_rows` the rows are made from contract.yaml, so many as the full training is planned for; there are no
    files then, and no check that judges values is tried.
    """

    kind: Literal["quick"] = "quick"
    training: TrainingSpec
    stages: StagesSpec
    hyperparameters: HyperparameterValues
    claims: PreflightSpec
    trainer: str | None = None
    training_file: str = ""
    validation_file: str = ""
    made_rows: int = 0
    processes: int = Field(default=1, ge=1)


class InputColumn(Frozen):
    """A feature as the contract has it, for whoever changes its values.

    `limits` are minimum, maximum, exclusive_minimum and exclusive_maximum of numbers, `allowed` the values that there
    may be, `closed` says that a value which no row has is refused. `sensitive`: its values are not told.
    """

    name: str
    logical_type: Literal["string", "integer", "number", "boolean", "date", "timestamp"]
    nullable: bool = True
    limits: dict[str, float] = Field(default_factory=dict)
    allowed: tuple[str | float | bool, ...] = ()
    closed: bool = False
    sensitive: bool = False


class ChangedInputsJob(Frozen):
    """Ask the model again with one of `columns` changed at a time, and what `tests` declare.

    `left_out` are features that cannot be changed, each with why. With a `reason` not to, only tests are asked.
    """

    columns: tuple[InputColumn, ...]
    tests: tuple[BehaviourSpec, ...] = ()
    left_out: tuple[str, ...] = ()
    reason: str = ""


class PredictJob(_RowsJob):
    """Score rows with an artifact, by the artifact's own code, and with baselines beside it.

    Baselines are fitted on `training_file` and, as the artifact was, calibrated on `calibration_file`; both are needed
    if there are any. The artifact alone also scores the rows of `reference_files`. `metrics` are the use case's own,
    whose figures of each row are written too; they see `metric_columns`. `weight` is the column that weighs the rows.
    With `decision`, what the answers decide is written as well; `threshold` is the artifact's own, where it has one.
    With `latency_limit_ms`, a latency above it is measured again. With `changed_inputs` the artifact is asked again
    with changed inputs, which needs `training_file`.
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
    decision: DecisionSpec | None = None
    threshold: float | None = None
    latency_limit_ms: float | None = None
    changed_inputs: ChangedInputsJob | None = None
    seed: int = 0


class ServedArtifact(Frozen):
    """An artifact's folder, its hash, and the columns that it is asked with."""

    path: str
    sha256: str
    features: tuple[str, ...]


class ServingJob(_RowsJob):
    """Measure in turns what two artifacts take to be served, on the first rows of `rows_file`.

    `batch_rows` are those of a batch: at least 1, and no more than the file has.
    """

    kind: Literal["serving"] = "serving"
    candidate: ServedArtifact
    champion: ServedArtifact
    rows_file: str
    batch_rows: int = Field(ge=1)


class DiagnoseJob(_Job):
    """Which part of a training is at fault? Its parts are exchanged one at a time, and it is made again each time.

    `training` is the stage's job. `parts` are tried in this order, at most `most` of them, as far as they make at most
    `trainings` times the stage's updates together (None for no such limit), but one at least; and none after
    `training.ends_at`. `updates` are those after which an alarm ended the stage, so that all trainings end soon after;
    None for all that are planned.
    """

    kind: Literal["diagnose"] = "diagnose"
    training: TrainJob
    parts: tuple[Part, ...]
    most: int
    trainings: float | None = None
    updates: int | None = None


class FunctionsJob(_RowsJob):
    """Try the functions of model.py on rows that are made from contract.yaml: no data is read, nothing is trained.

    `training` is None where use_case.yaml has mistakes. `steps` are about those of the full stage, where it is known.
    With a `trainer`, model.py need not define the network and its loss.
    """

    kind: Literal["functions"] = "functions"
    hyperparameters: HyperparameterValues
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
    TrainJob
    | PreflightJob
    | QuickJob
    | PredictJob
    | ServingJob
    | VerifyJob
    | FunctionsJob
    | ReplayJob
    | PackJob
    | DiagnoseJob,
    Field(discriminator="kind"),
]


def processes_of(job: AnyJob) -> int:
    """How many processes do the job together."""
    return job.processes if isinstance(job, TrainJob) else 1


class JobFile(Frozen):
    """The content of job.json."""

    job: AnyJob
