"""What the worker answers, each tied by hash to the job that asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainworthy.lifecycle.protocol.figures import Behaviour, Estimate
from trainworthy.lifecycle.protocol.forecasts import GpuFit, MemoryForecast, RunTime, StepTime
from trainworthy.lifecycle.protocol.jobs import CheckpointRef
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.protocol.records import Forecast, StoredFile
from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.protocol.training_figures import Alarm, Attempt, Diagnosis, StageSeconds, TrainingFigures
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.spec.frozen import Frozen


class GoldenAnswers(Frozen):
    """How many requests were answered, and the largest difference from the answers on record, at most 2.

    The difference is a share of Kind.answer_scale: as it is for probabilities, of their spread for numbers.
    """

    requests: int
    difference: float


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


# What a reference sees of a row: the raw columns, or the network's own tensors, flattened.
Inputs = Literal["columns", "tensors"]
LINEAR = "linear"


class Arm(Frozen):
    """What one reference shows of the validation rows, fitted on equally many rows of either kind.

    `fitted_on` validation rows it is cross-fitted by group. `rise` is as in References, over several draws of rows
    where `draws` is above 1. `loss` is its stretched loss, and `behind` the network's less it, paired by row; None
    where no fit of all the rows was made; `unstretched_loss` is that of one fit's answers as they are, None of several.
    `of_itself`, of the stage's rows, is the rise on these when each half of their groups is answered by a fit on the
    other; it is asked where they tell nothing of validation rows. `cpu_seconds` are those of fitting and answering:
    they are told, and decide nothing.
    """

    reference: str
    inputs: Inputs = "columns"
    fitted_on: Literal["validation", "stage"]
    rise: Estimate
    draws: int = 1
    loss: float | None = None
    behind: Estimate | None = None
    unstretched_loss: float | None = None
    of_itself: Estimate | None = None
    cpu_seconds: float = 0.0


class References(Frozen):
    """What the network and references show of the validation rows; `words` are the kind's.

    `network` is the rise of the kind's loss of a row when the network's answers are permuted within their group. It
    survives a base rate that shifts between training and validation, which a comparison with the prior does not. All
    answers are stretched alike, and standard errors resample groups. `arms` are the references', in the order in which
    they were asked: the kind's linear model always is, the others where what was found before leaves something open.
    `own` is the network's rise on rows that it learned from, as a share of their own labels' entropy, None where they
    lie in too few groups; `own_loss` is its loss there and `own_prior_loss` that of their best constant answer, None
    where it answered none. `label_entropy` is the loss of the validation rows' own best constant answer: what there is
    to explain. `within_groups` says whether most rows' answers were exchanged within their group: few rows a group
    forbid it, and labels that are one in each. `network_loss`, `stretched_loss` and `prior_loss` are the losses of the
    network, as it is and stretched, and of the training rows' best constant answer.
    """

    network: Estimate
    arms: tuple[Arm, ...]
    own: Estimate | None = None
    own_loss: float | None = None
    own_prior_loss: float | None = None
    label_entropy: float
    network_loss: float
    stretched_loss: float
    prior_loss: float
    within_groups: bool = True
    words: Words = Words()

    def arm(self, reference: str, fitted_on: str, inputs: Inputs = "columns") -> Arm | None:
        """That arm; None if it was not asked."""
        key = (reference, fitted_on, inputs)
        return next((arm for arm in self.arms if (arm.reference, arm.fitted_on, arm.inputs) == key), None)


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
    score is as good as a copy of the label. `event` is what the areas are of, such as "label above 3.2"; older records
    lack it.
    """

    auc: float
    standard_error: float
    auc_shuffled: float
    auc_nulls: float | None
    auc_expected: float
    inputs: tuple[InputGain, ...]
    count: int
    copy_auc: float = 0.97
    event: str = ""


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


class TrainResult(TrainingFigures):
    """Answer to a TrainJob. `ended` says what ended the training before its planned steps, if no alarm did.

    `alarm` is the one that stopped it. `metrics` are those of the network on the validation split, `artifact_metrics`
    the kind's there of its calibrated answers, as the artifact gives them: only full makes one. `progress` is None
    where a script made the first weights. `adversarial`: some parameters learn to raise the loss that others learn to
    lower. `attempts` are those that ended before it; whoever started the worker adds them. `trainer` is None for our
    loop.
    """

    kind: Literal["train"] = "train"
    alarm: Alarm | None
    planned_steps: int
    ended: Literal["", "early", "budget"] = ""
    notes: tuple[str, ...] = ()
    parameters_sha256: str  # pyright: ignore[reportIncompatibleVariableOverride]
    checkpoint: CheckpointRef | None
    metrics: dict[str, float]
    references: References | None
    progress: Progress | None = None
    adversarial: bool = False
    seconds: StageSeconds
    artifact: str | None = None
    artifact_metrics: dict[str, float] = Field(default_factory=dict)
    device: str
    gpu_seconds: float
    attempts: tuple[Attempt, ...] = ()
    trainer: OwnTrainer | None = None
    unreviewed: UnreviewedInputs | None = None


class FewestNodes(Frozen):
    """Memory as PreflightResult has it, of a training by the fewest nodes that it goes on with."""

    memory: Forecast | None
    step_memory: MemoryForecast | None
    gpus: tuple[GpuFit, ...] = ()


class PreflightResult(Frozen):
    """Answer to a PreflightJob. What could not be tried is missing or None, and `untried` says why.

    `ended_early`: the battery ended before it came to the forecasts, so that nothing was wrong with these. `fewest` is
    None where all nodes train or none.
    """

    kind: Literal["preflight"] = "preflight"
    memory: Forecast | None
    step_memory: MemoryForecast | None = None
    gpus: tuple[GpuFit, ...] = ()
    fewest: FewestNodes | None = None
    seconds: Forecast | None
    step: StepTime | None = None
    time: RunTime | None = None
    trials: tuple[Trial, ...] = ()
    leakage: tuple[Leak, ...] = ()
    untried: str = ""
    ended_early: bool = False
    device: str


class PredictResult(Frozen):
    """Answer to a PredictJob. `predictions` is Parquet: row, group, label, weight if rows have one, slice:<name>, and
    the answers of candidate and each baseline; with a decision what they decide, `thresholds` by model.

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
    thresholds: dict[str, float] = Field(default_factory=dict)
    behaviour: Behaviour = Behaviour()


class ServingResult(Frozen):
    """Answer to a ServingJob. `error` says which model could not be served and why; there are no figures then."""

    kind: Literal["serving"] = "serving"
    figures: tuple[ServingFigure, ...] = ()
    error: str = ""


class FunctionFault(Frozen):
    """One thing that is wrong with a function; `where` is a line, such as model.py:12 in predict.

    `columns` are those that it reads and its rows do not have.
    """

    where: str
    problem: str
    fix: str
    columns: tuple[str, ...] = ()


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


class DiagnoseResult(Frozen):
    """Answer to a DiagnoseJob."""

    kind: Literal["diagnose"] = "diagnose"
    diagnosis: Diagnosis
    device: str
    gpu_seconds: float


AnyResult = Annotated[
    TrainResult
    | PreflightResult
    | PredictResult
    | ServingResult
    | VerifyResult
    | FunctionsResult
    | ReplayResult
    | PackResult
    | DiagnoseResult,
    Field(discriminator="kind"),
]


class ResultFile(Frozen):
    """The content of result.json; `job_sha256` ties it to its job."""

    job_sha256: str
    result: AnyResult
