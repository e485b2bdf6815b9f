"""The typed form of use_case.yaml: values that people who write no torch can review."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.names import Name
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.split import SplitSpec
from trainworthy.lifecycle.spec.task import TaskSpec
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec

SCRIPT_PATTERN = r"^([A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py$"
OWNER_PATTERN = r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(values, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("write plain values: text, finite numbers, true or false, lists and mappings") from None
    return values


# Settings of our own loop, which a training script has its own ways for.
OF_OUR_UPDATES = ("skip_batch", "lower_rate", "roll_back")
OF_OUR_LOOP = (
    "ema", "early_stopping", "profile", "tensors", "reserve", "evaluate_every", "oversampling", "focal_gamma",
    "activation_checkpointing", "compile",
)  # fmt: skip


# The descriptions below are the only ones: `trainworthy schema` hands them to editors.
class DatasetSpec(Frozen):
    """The rows."""

    name: Name = Field(description="A dataset of data/versions.yaml; a stage of dvc.yaml builds it.")
    version: Name = Field(description="A published version of it, for example v9.")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class BudgetSpec(Frozen):
    """What may be spent."""

    run_usd: float = Field(gt=0, allow_inf_nan=False, description="USD that a run may cost.")


# How a training's processes hold its model: each the whole of it, or a part (FSDP2).
Sharding = Literal["none", "fsdp"]
# As long as one process may take between two updates (protocol/signals.py) until it counts as hanging.
COLLECTIVE_TIMEOUT_SECONDS = 1800.0
# What one may look for, and what does instead.
NOT_OFFERED = {
    "deepspeed": "it starts processes, scales and steps by an engine of its own, and its checkpoints are pickles; "
    "launcher: torchrun with sharding: fsdp divides a model by FSDP2 (docs/how-to/several-processes.md)",
    "accelerate": "a script of your own may use it, started by launcher: torchrun (docs/how-to/own-trainer.md)",
    "slurm": "ask Slurm for a machine (sbatch, salloc) and start the run on it, with launcher: local or torchrun",
}


class ComputeSpec(Frozen):
    """Where the worker runs. With `gpus` above 0 a step that trains takes a slot of the pool `gpu` of this machine."""

    launcher: Literal["local", "torchrun", "kubernetes", "ray"] = Field(
        default="local",
        description="local: a child process on this machine. torchrun: a training by several of them, each with a "
        "share of every batch. kubernetes: a pod of the cluster of kubernetes.yaml. ray: a job on a Ray cluster.",
    )
    processes: int = Field(
        default=1,
        ge=1,
        description="Processes of a training, for launcher torchrun, in pods of kubernetes, or on nodes of ray; "
        "with GPUs one for each.",
    )
    sharding: Sharding = Field(
        default="none",
        description="none: each process has the whole model (DDP). fsdp: weights, gradients and optimizer states are "
        "divided over them (FSDP2), for a model that fits no single device.",
    )
    nodes: int = Field(
        default=1,
        ge=1,
        description="Machines of the SKU that the processes are on, as many on each, for launcher torchrun, "
        "kubernetes (pods) or ray. Changes no result.",
    )
    least_nodes: int | None = Field(
        default=None,
        ge=1,
        description="For launcher ray: an attempt goes on with as many of the nodes as there are, so few at the least; "
        "left out, with all of them.",
    )
    collective_timeout_seconds: float = Field(
        default=COLLECTIVE_TIMEOUT_SECONDS,
        gt=0,
        allow_inf_nan=False,
        description="A process that waits longer for another ends the training, where there are several.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto looks for a GPU only if gpus is above 0."
    )
    gpus: int = Field(
        default=0,
        ge=0,
        description="GPUs of each machine. Above 0, a step that trains takes a slot of the pool gpu, unless a cluster "
        "has the queue.",
    )
    sku: str = Field(description="A price of prices.yaml.")
    loaders: int | None = Field(
        default=None,
        ge=1,
        description="Processes that make batches, for training.tensors per_batch; left out, one core less than there "
        "are. Changes no result.",
    )
    spot: bool = Field(default=False, description="The machine may be taken away at short notice.")

    @property
    def elsewhere(self) -> bool:
        """True if workers run on another machine than their launcher, which then says nothing about theirs."""
        return self.launcher in ("kubernetes", "ray")

    @property
    def fewest_nodes(self) -> int:
        """The machines that a training goes on with at the least."""
        return self.least_nodes or self.nodes

    @property
    def processes_each(self) -> int:
        """The processes of a training on each of its machines, however many there are."""
        return self.processes // self.nodes

    @property
    def fewest_processes(self) -> int:
        """The processes of a training on the fewest machines."""
        return self.fewest_nodes * self.processes_each

    @property
    def job_device(self) -> Literal["auto", "cpu", "cuda"]:
        """What a job is given: `auto` looks for a GPU only where one is declared, so none is used outside the pool."""
        return "cpu" if self.device == "auto" and self.gpus == 0 else self.device

    @field_validator("launcher", mode="before")
    @classmethod
    def _launcher_is_offered(cls, launcher: object) -> object:
        if isinstance(launcher, str) and launcher in NOT_OFFERED:
            raise ValueError(f"{launcher} is not offered: {NOT_OFFERED[launcher]}")
        return launcher

    @model_validator(mode="after")
    def _processes_have_a_launcher(self) -> ComputeSpec:
        if self.launcher == "local" and self.processes > 1:
            raise ValueError(f"processes: {self.processes} needs launcher: torchrun; local trains in one process")
        if self.launcher == "torchrun" and self.processes == 1:
            raise ValueError("launcher: torchrun needs processes: 2 or more; one process is launcher: local")
        if self.sharding != "none" and self.processes == 1:
            raise ValueError(
                f"sharding: {self.sharding} divides a model over processes, of which there is one: set processes: 2 or "
                "more with launcher: torchrun, kubernetes or ray, or remove sharding"
            )
        if self.nodes > 1 and self.launcher == "local":
            raise ValueError(
                f"nodes: {self.nodes} needs launcher: torchrun, kubernetes or ray; local trains on this machine"
            )
        if self.processes % self.nodes:
            raise ValueError(
                f"nodes: {self.nodes} do not divide processes: {self.processes}: each has as many; they are counted "
                "over all nodes"
            )
        if 0 < self.gpus < self.processes // self.nodes:
            here = f" on each of nodes: {self.nodes}" if self.nodes > 1 else ""
            raise ValueError(
                f"processes: {self.processes} share gpus: {self.gpus}{here}: each process needs a GPU of its own"
            )
        return self

    @model_validator(mode="after")
    def _least_nodes_are_some_of_rays(self) -> ComputeSpec:
        least = self.least_nodes
        if least is None:
            return self
        if self.launcher != "ray":
            raise ValueError(
                f"least_nodes: {least} needs launcher: ray, whose table of nodes says how many there are; remove it "
                f"with launcher: {self.launcher}"
            )
        if self.nodes == 1 or least > self.nodes:
            fewer = f"set least_nodes to 1 to {self.nodes}" if self.nodes > 1 else "set nodes to 2 or more"
            raise ValueError(f"least_nodes: {least} are no part of nodes: {self.nodes}: {fewer}, or remove it")
        if self.sharding != "none" and self.fewest_processes == 1:
            raise ValueError(
                f"least_nodes: {least} leaves one process, and sharding: {self.sharding} divides a model over several: "
                "raise least_nodes, or remove one of them"
            )
        return self


Engine = Literal["auto", "great_expectations", "fused", "spark"]


def chosen_engine(engine: Engine) -> Engine:
    """The engine that `auto` means. Fused takes a tenth of the time; see docs/decisions/0012-engines.md."""
    return "fused" if engine == "auto" else engine


class ValidationSpec(Frozen):
    """How the rows are judged. Changes no verdict, so it is no part of an identity."""

    engine: Engine = Field(
        default="auto",
        description="auto: the fastest, which is fused. great_expectations: the reference. spark: it, on Spark.",
    )


class PromotionSpec(Frozen):
    """What a challenger must show."""

    purpose: Literal["improve", "refresh"] = Field(
        description="improve: it must beat the champion. refresh: it must be no worse than the margin."
    )
    earlier_champions: int = Field(
        default=2, ge=0, le=20, description="Champions before the present one that answer each benchmark, to be told."
    )


class UseCaseSpec(Frozen):
    """What a use case is: values that people who write no torch can review. model.py and dataset.py say how."""

    name: Name = Field(description="The folder's name: lower-case letters, digits, _.")
    description: str = Field(default="", description="The question that the model answers, in one sentence.")
    owner: Annotated[str, StringConstraints(pattern=OWNER_PATTERN)] = Field(
        description="team:name or an e-mail address."
    )
    dataset: DatasetSpec
    task: TaskSpec = Field(description="What the label is and what the model answers.")
    prediction_time: str | None = Field(
        default=None,
        description="The column that says when the model is asked; left out where the rows hold no times, which a "
        "split by group, stratified or hash allows.",
    )
    target: str = Field(description="The label's name; contract.yaml defines it.")
    split: SplitSpec = Field(description="How the rows are split: by time, group, time_and_group, stratified or hash.")
    hyperparameters: Annotated[dict[str, Any], AfterValidator(_finite)] = Field(
        description="Handed to model.py as they are."
    )
    training: TrainingSpec
    trainer: Annotated[str, StringConstraints(pattern=SCRIPT_PATTERN)] | None = Field(
        default=None,
        description="The use case's own training script, for example train.py, in the place of Trainworthy's loop.",
    )
    stages: StagesSpec
    benchmark: BenchmarkSpec
    budget: BudgetSpec
    compute: ComputeSpec
    promotion: PromotionSpec
    preflight: PreflightSpec = Field(
        default_factory=PreflightSpec, description="What the network claims, and which checks do not apply."
    )
    validation: ValidationSpec = Field(default_factory=ValidationSpec, description="How the rows are judged.")

    @model_validator(mode="after")
    def _times_are_split_by_time(self) -> UseCaseSpec:
        if self.prediction_time is None and self.split.time_column is not None:
            raise ValueError(
                f"prediction_time is missing, and split.by: {self.split.by} needs it: name the column that says when "
                "the model is asked; rows without times are split by group, stratified or hash"
            )
        return self

    @model_validator(mode="after")
    def _no_whole_tensors_with_loaders(self) -> UseCaseSpec:
        whole = [name for name in ("reserve", "early_stopping") if getattr(self.training, name)]
        if self.training.tensors == "per_batch" and whole:
            raise ValueError(
                f"training.{' and '.join(whole)} hold whole tensors of their rows, and tensors: per_batch is "
                "there to avoid them: remove one of the two"
            )
        return self

    @model_validator(mode="after")
    def _own_trainer_is_the_loop(self) -> UseCaseSpec:
        ours = TrainingSpec.model_fields
        settings = [name for name in OF_OUR_LOOP if getattr(self.training, name) != ours[name].default]
        settings = [f"training.{name}" for name in settings]
        actions = self.training.monitors.model_dump()
        settings += [f"training.monitors.{name}: {value}" for name, value in actions.items() if value in OF_OUR_UPDATES]
        if actions["hang"] == "stop":
            settings.append("training.monitors.hang: stop")
        if self.stages.mode == "continue":
            settings.append("stages.mode continue")
        if self.trainer is not None and settings:
            raise ValueError(
                f"{', '.join(settings)} belong to Trainworthy's own loop and have no effect beside trainer: "
                "remove them, and do as much in the script"
            )
        return self

    @model_validator(mode="after")
    def _ranks_have_rows(self) -> UseCaseSpec:
        rows = self.training.batch_size * self.training.accumulate
        if rows < self.compute.processes:
            raise ValueError(
                f"an update of {rows} rows (training.batch_size times accumulate) leaves some of compute.processes: "
                f"{self.compute.processes} without a row"
            )
        return self

    @model_validator(mode="after")
    def _shards_are_trained_by_the_loop(self) -> UseCaseSpec:
        if self.compute.sharding == "none":
            return self
        if self.trainer is not None:
            raise ValueError(
                f"compute.sharding: {self.compute.sharding} belongs to Trainworthy's own loop and has no effect beside "
                "trainer: remove it, and call fully_shard in the script (docs/how-to/own-trainer.md)"
            )
        whole = [f"training.{name}" for name in ("ema", "compile") if getattr(self.training, name)]
        if whole:
            raise ValueError(
                f"{' and '.join(whole)} need the whole model in each process, and compute.sharding: "
                f"{self.compute.sharding} divides it: remove one or the other"
            )
        return self

    @model_validator(mode="after")
    def _fewer_nodes_are_trained_by_the_loop(self) -> UseCaseSpec:
        if self.compute.least_nodes is not None and self.trainer is not None:
            raise ValueError(
                f"compute.least_nodes: {self.compute.least_nodes} has no effect beside trainer: nothing says that the "
                "script goes on from its checkpoint by fewer processes; remove it"
            )
        return self

    @model_validator(mode="after")
    def _loaders_have_work(self) -> UseCaseSpec:
        if self.compute.loaders is not None and self.training.tensors == "ahead":
            raise ValueError(
                "compute.loaders has no effect while training.tensors is ahead: remove it, or say per_batch"
            )
        return self

    @model_validator(mode="after")
    def _stopped_stages_restart(self) -> UseCaseSpec:
        if self.training.early_stopping is not None and self.stages.mode == "continue":
            raise ValueError(
                "training.early_stopping needs stages.mode: restart, since a stage is the whole of its run"
            )
        return self
