"""A training in one frozen value, from which each set-up of the benchmarks is made by `replace`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec, StagesSpec, TrainingSpec

STAGES = StagesSpec(smoke=0.01, pilot=0.1, full=1.0)


def on_device(subject: Subject) -> Subject:
    """The same on the GPU, where there is one."""
    if not torch.cuda.is_available():
        return subject
    moved = None if subject.loaded is None else replace(subject.loaded, device="cuda")
    training, held_out = subject.training.to("cuda"), subject.held_out.to("cuda")
    return replace(subject, training=training, held_out=held_out, loaded=moved, device="cuda")


@dataclass(frozen=True, eq=False)
class Setup:
    """What a use case would declare and give, with rows that are tensors already.

    `network` makes a module from the random numbers as they stand. `build_optimizers(model)`, `schedule(step, steps)`
    and `augment` are what model.py may define; without them the declared ones hold.
    """

    network: Callable[[], nn.Module]
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    training: TrainData
    held_out: TrainData
    seed: int
    groups: np.ndarray | None = None
    predict: Callable[[Tensor], Tensor] | None = None
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup: float = 0.1
    decay: Literal["cosine", "constant"] = "cosine"
    batch_size: int = 32
    accumulate: int = 1
    epochs: int = 6
    clip_norm: float = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    build_optimizers: Callable[[nn.Module], Sequence[torch.optim.Optimizer]] | None = None
    schedule: Callable[[int, int], float] | None = None
    augment: Callable[..., Any] | None = None
    claims: PreflightSpec = field(default_factory=PreflightSpec)

    def spec(self) -> TrainingSpec:
        return TrainingSpec(
            optimizer=OptimizerSpec(
                name=self.optimizer, learning_rate=self.learning_rate, weight_decay=self.weight_decay
            ),
            schedule=ScheduleSpec(warmup=self.warmup, decay=self.decay),
            batch_size=self.batch_size, accumulate=self.accumulate, epochs=self.epochs,
            precision=self.precision, clip_norm=self.clip_norm, seed=self.seed,
        )  # fmt: skip

    def subject(self) -> Subject:
        """The subject, made by the same functions as a use case's."""
        spec, task = self.spec(), SimpleNamespace(loss_fn=self.loss_fn)
        if own_optimizers := self.build_optimizers:
            task.build_optimizers = lambda model, declared: list(own_optimizers(model))
        if own_schedule := self.schedule:
            task.learning_rate = lambda step, steps, declared: own_schedule(step, steps)
        if self.augment:
            task.augment = self.augment
        plan = make_plan(len(self.training.targets), spec, STAGES, "full")

        def build() -> nn.Module:
            torch.manual_seed(self.seed)
            return self.network()

        return Subject(
            build=build,
            optimizers=lambda model: make_optimizers(task, model, spec.optimizer),  # pyright: ignore[reportArgumentType]
            recipe=make_recipe(task, spec, plan.horizon_steps),  # pyright: ignore[reportArgumentType]
            training=self.training, held_out=self.held_out, plan=plan, predict=self.predict, groups=self.groups,
            claims=self.claims,
        )  # fmt: skip


def with_targets(base: Setup, change: Callable[[Tensor], Tensor]) -> Setup:
    training, held_out = (replace(part, targets=change(part.targets)) for part in (base.training, base.held_out))
    return replace(base, training=training, held_out=held_out)


def with_inputs(base: Setup, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Setup:
    training, held_out = (replace(part, inputs=change(part.inputs)) for part in (base.training, base.held_out))
    return replace(base, training=training, held_out=held_out)


class ForwardOf(nn.Module):
    """A network that takes one input by its name; the last dimension is dropped if it is one and `squeeze`."""

    def __init__(self, name: str, layers: nn.Module, squeeze: bool = True) -> None:
        super().__init__()
        self.name, self.squeeze, self.layers = name, squeeze, layers

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        outputs = self.layers(inputs[self.name])
        return outputs.squeeze(-1) if self.squeeze and outputs.shape[-1] == 1 else outputs
