"""What the battery tries out: a training as the loop is given it, and what the use case claims of it.

The checks see nothing else, so they hold for any network: of a use case (sample.py makes its subject), or of a few
lines of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.throughput.blocked import Spent
from trainworthy.lifecycle.engine.training import loop
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, Stateful, TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.recompute import checkpoint_activations
from trainworthy.lifecycle.engine.training.techniques.scaler import scaler_of
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.training import Precision
from trainworthy.lifecycle.spec.use_case import Sharding
from trainworthy.lifecycle.tasks import Kind


@dataclass(frozen=True)
class Scored:
    """What of the validation split is scored between updates and at the end: its rows, at most `chunk` at a time.

    `kept`: its tensors stay on the device, since early stopping scores it again and again.
    """

    rows: int
    chunk: int
    kept: bool = False


@dataclass(frozen=True, eq=False)
class Subject:
    """A training to be tried out.

    `build` gives a fresh model on the CPU, each time with the same weights; `optimizers` what updates it.
    `training` and `held_out` are samples of rows that the model will train on and will not, prepared as they will be;
    `groups` are the held-out rows' groups, for example days, shape (N,), each row its own if None, and
    `split_by_time` as Rows. `labels` are those of all training rows, by the numbers that the plan draws; None if
    `training` holds all rows. `predict` turns
    outputs into the answers of the `kind`, (N, ...), None if the model gives none; without a kind, into probabilities
    of label 1, (N,). `plan` is the full stage's. `loaded` are the same
    training rows where a stage has its batches made by loaders, augmentation included; else None. `parts` are what the
    training has beside model and optimizers, by name; early stopping's evaluates few held-out rows, at every update.
    `scored` is None where no validation split is known, `durable` where checkpoints are copied to no second folder, and
    `made`, what making the tensors of `training` took, where that is not known.
    `activation_checkpointing` names modules as the use case does: an update recomputes them, while a look at the
    network, which has the same values, needs no update. `compiled`: a stage compiles its updates. `fewest_rows` are
    those of the smallest update that any stage makes, where that is known. `reshaped` says which inputs are files whose
    axes were exchanged by a reshape. `processes` share out the rows of each update, as many on each of `nodes`,
    `least_nodes` of them at the least; `sharding` divides the network over them.
    """

    build: Callable[[], nn.Module]
    optimizers: Callable[[nn.Module], tuple[torch.optim.Optimizer, ...]]
    recipe: Recipe
    training: TrainData
    held_out: TrainData
    plan: Plan
    predict: Callable[[Tensor], Tensor] | None = None
    kind: Kind | None = None
    groups: np.ndarray | None = None
    split_by_time: bool = True
    labels: np.ndarray | None = None
    loaded: LoadedRows | None = None
    parts: Callable[[nn.Module], dict[str, Stateful]] = lambda model: {}
    scored: Scored | None = None
    durable: str | None = None
    made: Spent | None = None
    activation_checkpointing: tuple[str, ...] = ()
    compiled: bool = False
    fewest_rows: int | None = None
    processes: int = 1
    nodes: int = 1
    least_nodes: int | None = None
    sharding: Sharding = "none"
    reshaped: tuple[str, ...] = ()
    claims: PreflightSpec = field(default_factory=PreflightSpec)
    device: str = "cpu"

    def with_fewest_nodes(self) -> Subject | None:
        """The same by the fewest nodes that it goes on with; None where these are all."""
        if self.least_nodes is None or self.least_nodes == self.nodes:
            return None
        processes = self.processes // self.nodes * self.least_nodes
        return replace(self, processes=processes, nodes=self.least_nodes, least_nodes=None)

    def model(self) -> nn.Module:
        """A fresh model on the device."""
        return self.build().to(self.device)

    def state(self) -> TrainState:
        """A fresh model and its optimizers, as a stage makes them. Raises TrainingError as checkpoint_activations."""
        model = self.model()
        checkpoint_activations(model, self.activation_checkpointing)
        return TrainState(model, self.optimizers(model), also=self.also(model))

    def also(self, model: nn.Module, precision: Precision | None = None) -> dict[str, Stateful]:
        """The parts of a state of this model, in another precision than the recipe's if one is given."""
        return {**self.parts(model), **scaler_of(precision or self.recipe.precision)}

    def batch_rows(self) -> int:
        """Rows of a forward pass: those of an update, divided by its accumulated parts."""
        return max(1, self.plan.batch_size // self.recipe.accumulate)

    def smallest_pass(self) -> int:
        """Rows of the smallest forward pass of any process and stage: an earlier one may have fewer rows."""
        fewest = min(self.fewest_rows or self.plan.batch_size, self.plan.batch_size)
        return max(1, fewest // self.processes // self.recipe.accumulate)


def autocast(subject: Subject) -> AbstractContextManager[object]:
    """The precision that the recipe trains in."""
    return loop.autocast(subject.recipe.precision, torch.device(subject.device).type)
