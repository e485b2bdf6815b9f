"""How a use case trains: the sections `training` and `stages` of use_case.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from trainworthy.lifecycle.spec.frozen import Frozen


def _odd(count: int) -> int:
    if count % 2 == 0:
        raise ValueError("write an odd number, so that one training has the median loss")
    return count


Action = Literal["warn", "skip_batch", "lower_rate", "roll_back", "stop"]
Precision = Literal["fp32", "bf16", "fp16"]


class OptimizerSpec(Frozen):
    """The optimizer."""

    name: Literal["adamw", "sgd"] = Field(description="adamw, or sgd with momentum 0.9.")
    learning_rate: float = Field(gt=0, allow_inf_nan=False, description="At the peak of the schedule.")
    weight_decay: float = Field(ge=0, allow_inf_nan=False, description="0 for none.")


class ScheduleSpec(Frozen):
    """Linear warm-up over a share of the steps, then the named decay to zero."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"decay": {"const": "wsd"}}},
            "then": {"required": ["decay_share"]},
            "else": {"properties": {"decay_share": False}},
        }
    )

    warmup: float = Field(ge=0, lt=1, description="Share of the steps, for example 0.1.")
    decay: Literal["cosine", "linear", "wsd", "constant"] = Field(
        description="cosine or linear to zero; wsd: stable, then linear to zero over decay_share; or constant."
    )
    decay_share: float | None = Field(
        default=None, gt=0, le=1, description="Only of wsd: share of the steps that the decay takes, for example 0.2."
    )

    @model_validator(mode="after")
    def _share_of_wsd(self) -> ScheduleSpec:
        if (self.decay == "wsd") != (self.decay_share is not None):
            raise ValueError("wsd needs decay_share, and no other decay has one")
        if self.warmup + (self.decay_share or 0.0) > 1:
            raise ValueError("warmup and decay_share together must be at most 1")
        return self


class ClassWeights(Frozen):
    """How much more a positive row counts in training than a negative one."""

    positive: float = Field(gt=0, allow_inf_nan=False, description="Weight of a positive row; a negative one has 1.")


WeightsOfClasses = Annotated[
    Annotated[Literal["none", "balanced"], Tag("name")] | Annotated[ClassWeights, Tag("weights")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "weights"),
]


class OversampledClass(Frozen):
    """How often an epoch draws a positive row."""

    positive: float = Field(gt=1, le=1000, description="Draws of a positive row in an epoch; a negative one has 1.")


Oversampling = Annotated[
    Annotated[Literal["balanced"], Tag("name")] | Annotated[OversampledClass, Tag("times")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "times"),
]


class TrainingSpec(Frozen):
    """How the network is trained."""

    optimizer: OptimizerSpec
    schedule: ScheduleSpec
    batch_size: int = Field(ge=1, description="Rows of a forward pass.")
    accumulate: int = Field(
        default=1, ge=1, description="Batches whose gradients are added up to one update; 1 for none."
    )
    epochs: int = Field(ge=1, description="Passes over the rows of a stage.")
    precision: Precision = Field(
        description="fp32; bf16, fp16: forward and loss in autocast. fp16 scales the loss, and leaves out an update "
        "whose gradients overflow."
    )
    clip_norm: float = Field(gt=0, allow_inf_nan=False, description="Gradients are scaled down to this norm.")
    seed: int = Field(ge=0, description="Of initial weights, order of rows and dropout.")
    pilot_seeds: Annotated[int, Field(ge=1, le=20)] = Field(
        default=1, description="Trainings of the pilot, with seed, seed + 1, ...: above 1 their spread is measured."
    )
    full_seeds: Annotated[int, Field(ge=1, le=19), AfterValidator(_odd)] = Field(
        default=1, description="Trainings of full; the one with the median validation loss ships. An odd number."
    )
    class_weights: WeightsOfClasses | None = Field(
        default=None,
        description="Weights of training rows by class; predictions are calibrated afterwards. none, balanced (both "
        "classes count the same), or {positive: 3.0}. Left out, it is none, and a rare class is told as a warning.",
    )
    oversampling: Oversampling | None = Field(
        default=None,
        description="Rows of a rare class are drawn more often in an epoch; predictions are calibrated afterwards. "
        "balanced (as many draws of both classes), or {positive: 3.0}. Not together with class_weights.",
    )
    focal_gamma: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="Focal loss: a training row's loss counts (1 - p)^gamma times, p being the probability of its "
        "label, for example 2.0. Predictions are calibrated afterwards. For losses that are -log p.",
    )
    activation_checkpointing: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Modules that keep their inputs alone and compute the rest again in the backward pass: names as in "
        "model.named_modules(), * for one part of a name, for example blocks.*. Less memory, more time, the same bits.",
    )
    compile: bool = Field(
        default=False,
        description="true: torch.compile for the passes of an update, which needs a C++ compiler. Evaluation and "
        "export stay as they are. Not together with activation_checkpointing.",
    )
    tensors: Literal["ahead", "per_batch"] = Field(
        default="ahead",
        description="ahead: to_tensors once for all rows of a stage. per_batch: for each batch, in processes beside "
        "the training, where rows must be decoded or their tensors do not fit into memory.",
    )
    ema: EmaSpec | None = Field(default=None, description="Average of the weights that is validated and shipped.")
    early_stopping: EarlyStoppingSpec | None = Field(
        default=None, description="When the validation loss ends a stage. Needs stages.mode: restart."
    )
    monitors: MonitorsSpec = Field(
        default_factory=lambda: MonitorsSpec(), description="What is done about alarms while training."
    )
    profile: ProfileSpec | None = Field(
        default=None, description="Updates that torch's profiler records into trace.json. Changes no result."
    )
    checkpoint_every_steps: int | None = Field(
        default=None,
        ge=1,
        description="Left out, as often as pays (docs/how-to/checkpoints.md). Changes no result.",
    )
    reserve: float = Field(
        default=0.0,
        ge=0,
        le=0.2,
        description="Share of a stage's rows that are never trained on: scored after the first pass, when the training "
        "rows have been seen. 0 for none.",
    )
    evaluate_every: int = Field(
        default=0,
        ge=0,
        description="Every so many batches of the first pass are also scored in evaluation mode before their update, "
        "without dropout. 0 for none.",
    )

    @property
    def imbalance(self) -> str:
        """What is declared of classes that are not equally frequent; empty if nothing is."""
        names = ("class_weights", "oversampling", "focal_gamma")
        given = {name: getattr(self, name) for name in names}
        return ", ".join(f"training.{name}: {value}" for name, value in given.items() if value is not None)

    @model_validator(mode="after")
    def _one_way_to_count_more(self) -> TrainingSpec:
        if self.oversampling is not None and self.class_weights not in (None, "none"):
            raise ValueError("class_weights and oversampling both let a class count more: declare one of them")
        return self

    @model_validator(mode="after")
    def _compiled_as_a_whole(self) -> TrainingSpec:
        if self.compile and self.activation_checkpointing:
            raise ValueError("compile and activation_checkpointing both change the forward pass: declare one of them")
        return self

    @model_validator(mode="after")
    def _reserve_is_scored(self) -> TrainingSpec:
        if self.reserve and self.epochs == 1:
            raise ValueError(
                "reserve is scored after the first pass, and epochs is 1: remove reserve, or use evaluate_every"
            )
        return self


class EmaSpec(Frozen):
    """An exponential moving average of the weights, which is validated and shipped in place of the last ones."""

    decay: float = Field(
        gt=0, lt=1, description="Share that an update leaves, for example 0.999; less in the beginning."
    )


class EarlyStoppingSpec(Frozen):
    """Ends a stage when the loss on the validation split no longer falls; its best evaluation's weights are shipped."""

    every: int = Field(ge=1, description="Updates between two evaluations.")
    patience: int = Field(ge=1, description="Evaluations in a row that are not better than the best.")
    min_steps: int = Field(ge=20, description="Updates before which no stage is ended.")


Later = Literal["warn", "lower_rate", "roll_back", "stop"]


class MonitorsSpec(Frozen):
    """What is done about the alarms of a training, by what is wrong.

    warn: it is told. skip_batch: this batch is not trained on. lower_rate: from here on the learning rate is
    multiplied by rate_factor. roll_back: the newest checkpoint before the onset is loaded and the batches since the
    onset are left out. stop: the stage ends with the weights as they were before.
    """

    non_finite: Literal["skip_batch", "lower_rate", "roll_back", "stop"] = Field(
        default="stop",
        description="Loss, gradient or a parameter is not finite. Such an update is never applied; lower_rate leaves "
        "it out, too.",
    )
    non_finite_activation: Later = Field(
        default="warn", description="A module's output is not finite, while loss and gradient are."
    )
    outlier_batch: Literal["warn", "skip_batch"] = Field(
        default="warn", description="One batch's loss or gradient lies far above all others'."
    )
    loss_spike: Later = Field(default="warn", description="The loss jumped, and stayed there for several batches.")
    gradient_spike: Later = Field(
        default="warn", description="The gradient jumped and stayed there, and the loss rose with it."
    )
    exploding_gradients: Later = Field(
        default="warn", description="The gradient grows from update to update by a steady factor."
    )
    vanishing_gradients: Later = Field(
        default="warn", description="A parameter's gradient shrinks by a steady factor while the loss does not."
    )
    hang: Literal["warn", "stop"] = Field(
        default="warn",
        description="No update ends for far longer than usual. stop ends the process; the checkpoint that exists "
        "stays. Changes no result.",
    )
    most_times: int = Field(
        default=3, ge=1, description="So often a training goes back, and so often its rate is lowered; then it stops."
    )
    rate_factor: float = Field(default=0.5, gt=0, lt=1, description="Of lower_rate.")

    @model_validator(mode="after")
    def _of_use(self) -> MonitorsSpec:
        actions = {value for value in self.model_dump().values() if isinstance(value, str)}
        if self.rate_factor != 0.5 and "lower_rate" not in actions:
            raise ValueError("rate_factor has an effect only where an alarm's action is lower_rate")
        if self.most_times != 3 and not actions & {"lower_rate", "roll_back"}:
            raise ValueError("most_times has an effect only where an alarm's action is lower_rate or roll_back")
        return self

    def action(self, monitor: str) -> Action:
        """What is declared for a monitor's findings; they are told where nothing is."""
        name = monitor if monitor == "non_finite_activation" else re.sub("^non_finite_.*", "non_finite", monitor)
        return getattr(self, name, "warn")


class ProfileSpec(Frozen):
    """Which updates of each stage torch's profiler records."""

    after_steps: int = Field(
        ge=1, description="Updates before the first one that is recorded; let the first ones pass."
    )
    steps: int = Field(ge=1, le=100, description="Updates that are recorded; a few tell enough.")


class StagesSpec(Frozen):
    """Fractions of the training rows.

    restart: each stage trains anew on a nested, stratified subset with its own full schedule.
    continue: the stages are pauses of one run over all rows (single-pass training).
    """

    smoke: float = Field(gt=0, le=1, description="Fraction of the training rows that shows whether anything runs.")
    pilot: float = Field(gt=0, le=1, description="Fraction that shows whether anything is learned.")
    full: float = Field(ge=1, le=1, description="1.0: all training rows.")
    mode: Literal["restart", "continue"] = Field(
        default="restart", description="restart: each stage trains anew. continue: the stages are pauses of one run."
    )

    @model_validator(mode="after")
    def _grow(self) -> StagesSpec:
        if not self.smoke <= self.pilot <= self.full:
            raise ValueError("the fractions must grow: smoke <= pilot <= full")
        return self

    def fraction(self, stage: str) -> float:
        """Fraction of the training rows of a stage."""
        return float(getattr(self, stage))
