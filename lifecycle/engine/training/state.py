"""What the loop works on: the state that changes, the data, how an update is made of it, and what one showed."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.techniques.scaler import Scaler
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.engine.training.watching.curve import Curve
from trainworthy.lifecycle.plan import Plan, step_seed
from trainworthy.lifecycle.protocol.training_figures import MadeBy
from trainworthy.lifecycle.spec.training import Precision

if TYPE_CHECKING:
    from trainworthy.lifecycle.engine.training.ranks.shards import Shards

LossFn = Callable[[Tensor, Tensor], Tensor]
Inputs = dict[str, Tensor]
Augment = Callable[[Inputs, Tensor, torch.Generator], tuple[Inputs, Tensor]]
Share = Callable[[Tensor], Tensor]


def whole(rows: Tensor) -> Tensor:
    """The share of the only process."""
    return rows


class Stateful(Protocol):
    """What changes with the steps and must come back after a resume. Plain values and tensors only: no pickle."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class TrainState:
    """All that changes while training; a checkpoint holds exactly this and the random number generators.

    `made_by` tells how many processes have made it so far. `also` are the parts that only some trainings have, by name:
    a checkpoint with other names is refused. No part of a checkpoint are `clock`, `row_losses`, the newest batch's
    unweighted losses, `(N,)`, and `ranks`, None where one process trains.
    """

    model: torch.nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    step: int = 0
    curve: Curve = field(default_factory=Curve)
    prefix_sha256: str | None = None
    made_by: tuple[MadeBy, ...] = ()
    also: dict[str, Stateful] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    row_losses: Tensor | None = None
    ranks: Ranks | None = None

    @cached_property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The model's, in its order. Walking the modules at every update cost 1.5 % of a 2.5 ms step."""
        return list(self.model.parameters())

    @cached_property
    def with_gradients(self) -> list[Tensor]:
        """What backward may leave a gradient in: the model's parameters, and what else an optimizer moves."""
        moved = [
            parameter
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        return list(dict.fromkeys([*self.parameters, *moved]))

    @cached_property
    def buffers(self) -> list[Tensor]:
        """The model's, in its order."""
        return list(self.model.buffers())

    @property
    def shards(self) -> Shards | None:
        """What divides the model over the ranks, where something does."""
        return None if self.ranks is None else self.ranks.shards

    def weights(self) -> dict[str, Tensor]:
        """The model's state dict; where it is divided, a whole one on the host."""
        return self.model.state_dict() if self.shards is None else self.shards.weights()

    @property
    def scaler(self) -> Scaler | None:
        """What fp16 scales the loss by, if the state was made for it."""
        scaler = self.also.get("scaler")
        return scaler if isinstance(scaler, Scaler) else None


@dataclass(frozen=True)
class TrainData:
    """Whole tensors on the training device: inputs by name, each (N, ...), targets (N,), and weights (N,) of mean 1.

    None as weights: every row counts the same.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    weights: Tensor | None = None

    def batches(self, plan: Plan, first_step: int, share: Share = whole) -> Generator[tuple[TrainData, Tensor]]:
        """This data and the row numbers of each step's share from `first_step` on."""
        for step in range(first_step, plan.last_step):
            yield self, share(plan.batch(step)).to(self.targets.device)

    @property
    def device(self) -> torch.device:
        return self.targets.device

    @property
    def valued(self) -> dict[str, Tensor]:
        """The inputs that hold a value: of a table without texts, the categories are a tensor of shape (N, 0)."""
        return {name: tensor for name, tensor in self.inputs.items() if tensor.numel()}

    def to(self, device: torch.device | str) -> TrainData:
        """The same rows on a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return TrainData(
            {name: tensor.to(device) for name, tensor in self.inputs.items()}, self.targets.to(device), weights
        )

    def take(self, rows: Tensor) -> TrainData:
        """Some rows of the data, by their numbers."""
        weights = None if self.weights is None else self.weights[rows]
        return TrainData({name: tensor[rows] for name, tensor in self.inputs.items()}, self.targets[rows], weights)


class Batches(Protocol):
    """What the loop trains on: data in memory, or rows that loaders make tensors of (loading.py).

    `share` gives the rows of an update that this process trains on.
    """

    def batches(self, plan: Plan, first_step: int, share: Share = whole) -> Generator[tuple[TrainData, Tensor]]: ...


@dataclass(frozen=True)
class Recipe:
    """How an update is made of a batch: all that a use case declares of it, and nothing that changes.

    `learning_rate` gives the rate of a step; a parameter group multiplies it by its own `lr_scale`. `augment` changes
    inputs and targets of a batch; its generator depends on (seed, step) only, so that a resumed run draws the same.
    `focal_gamma` lets rows that are right already count less (techniques/focal.py), 0 for all the same.
    """

    loss_fn: LossFn
    learning_rate: Callable[[int], float]
    clip_norm: float
    precision: Precision = "fp32"
    accumulate: int = 1
    augment: Augment | None = None
    focal_gamma: float = 0.0
    seed: int = 0

    def generator(self, step: int, rank: int = 0) -> torch.Generator | None:
        """What `augment` draws from at this step, None without it; each rank has draws of its own."""
        return None if self.augment is None else torch.Generator().manual_seed(step_seed(self.seed, step, rank))


class Update(NamedTuple):
    """What one update showed: losses are unweighted and from before it.

    `grad_norms` are each parameter's, in the order of `TrainState.parameters`, None where there was no gradient;
    `grad_norm` is the norm of them all, before it was clipped. `skipped` is True if the watch kept it from the weights.
    """

    loss: float
    squared: float
    grad_norm: float
    grad_norms: list[float | None]
    skipped: bool = False


# A batch on the skip list.
PASSED_OVER = Update(math.nan, math.nan, math.nan, [], skipped=True)
