"""The training loop: one screen, one update a step, one device read a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lifecycle.jobs import Alarm
from lifecycle.training.clock import COMPUTE, DATA, Clock
from lifecycle.training.curve import Curve
from lifecycle.training.plan import Plan, step_seed

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

    LossFn = Callable[[Tensor, Tensor], Tensor]
    Inputs = dict[str, Tensor]
    Augment = Callable[[Inputs, Tensor, Generator], tuple[Inputs, Tensor]]


class Stateful(Protocol):
    """What changes with the steps and must come back after a resume. Plain values and tensors only: no pickle."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class TrainState:
    """All that changes while training; a checkpoint holds exactly this and the random number generators.

    `also` are the parts that only some trainings have, by name: a checkpoint with other names is refused. No part of a
    checkpoint are `clock` and `row_losses`, the newest batch's unweighted losses, `(N,)`.
    """

    model: torch.nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    step: int = 0
    curve: Curve = field(default_factory=Curve)
    prefix_sha256: str | None = None
    also: dict[str, Stateful] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    row_losses: Tensor | None = None


@dataclass(frozen=True)
class TrainData:
    """Whole tensors on the training device: inputs by name, each (N, ...), targets (N,), and weights (N,) of mean 1.

    None as weights: every row counts the same.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True)
class Recipe:
    """How an update is made of a batch: all that a use case declares of it, and nothing that changes.

    `learning_rate` gives the rate of a step; a parameter group multiplies it by its own `lr_scale`. `augment` changes
    inputs and targets of a batch; its generator depends on (seed, step) only, so that a resumed run draws the same.
    """

    loss_fn: LossFn
    learning_rate: Callable[[int], float]
    clip_norm: float
    precision: Literal["fp32", "bf16"] = "fp32"
    accumulate: int = 1
    augment: Augment | None = None
    seed: int = 0


def train(
    state: TrainState,
    data: TrainData,
    plan: Plan,
    recipe: Recipe,
    after_step: Callable[[TrainState, float], bool],
) -> Alarm | None:
    """Train from state.step to plan.last_step; `after_step` (checkpoint, progress) may end it by returning True.

    Returns an alarm, with the weights as they were before the bad step, if loss or gradient is not finite.
    """
    state.model.train()
    while state.step < plan.last_step:
        rows = plan.batch(state.step).to(data.targets.device)
        rate = recipe.learning_rate(state.step)
        for optimizer in state.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["lr_scale"]
        state.clock.lap(DATA)
        loss, squared, grad_norm = train_step(state, data, rows, recipe)
        state.clock.lap(COMPUTE)
        alarm = _not_finite(state.step, loss, grad_norm)
        if alarm is not None:
            return alarm
        state.step += 1
        state.curve.add(state.step, len(rows), loss, squared, rate, plan.window, plan.steps_per_epoch)
        if after_step(state, loss):
            return None
    return None


def train_step(state: TrainState, data: TrainData, rows: Tensor, recipe: Recipe) -> tuple[float, float, float]:
    """One update on the weighted loss. Returns mean loss, mean squared loss (unweighted, before it) and gradient norm.

    The losses are those of the training forward, so each row of the first pass is scored by weights
    that have not seen it. If loss or gradient is not finite, weights and buffers are left as they were.
    """
    import torch

    # The forward pass already changes buffers (the running means of batch norm), and would leave NaN in them.
    buffers = [(buffer, buffer.clone()) for buffer in state.model.buffers()]

    for optimizer in state.optimizers:
        optimizer.zero_grad(set_to_none=True)
    generator = torch.Generator().manual_seed(step_seed(recipe.seed, state.step))
    # Parts of equal size, but for one row: chunk would leave a single row over, on which batch norm can't train.
    parts = rows.tensor_split(min(recipe.accumulate, len(rows)))
    # In float64, since the square of a loss of 2e19 is too large for float32.
    wide = torch.cat([backward(state.model, data, part, recipe, generator, of=len(rows)) for part in parts]).double()
    state.row_losses = wide
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    # One fused read: a separate .item() for each would wait for the device three times.
    loss, squared, grad_norm = torch.stack([wide.mean(), wide.square().mean(), norm.double()]).tolist()
    if _finite(loss, grad_norm):
        torch.nn.utils.clip_grads_with_norm_(list(state.model.parameters()), recipe.clip_norm, norm)
        for optimizer in state.optimizers:
            optimizer.step()
    else:
        for buffer, before in buffers:
            buffer.data.copy_(before)
    return loss, squared, grad_norm


def backward(
    model: torch.nn.Module, data: TrainData, rows: Tensor, recipe: Recipe, generator: Generator, of: int
) -> Tensor:
    """Forward and backward of a part of a batch of `of` rows: adds its share of the gradients.

    Returns each row's unweighted loss, `(N,)`.
    """
    import torch

    inputs, targets = {name: tensor[rows] for name, tensor in data.inputs.items()}, data.targets[rows]
    if recipe.augment is not None:
        inputs, targets = recipe.augment(inputs, targets, generator)
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        losses = recipe.loss_fn(model(inputs), targets)
    assert losses.shape == (len(rows),), (
        f"loss_fn must give one loss a row, shape ({len(rows)},), got {tuple(losses.shape)}"
    )
    weighted = losses if data.weights is None else losses * data.weights[rows]
    (weighted.mean() * (len(rows) / of)).backward()
    return losses.detach()


def _finite(*values: float) -> bool:
    return all(abs(value) < float("inf") for value in values)


def _not_finite(step: int, loss: float, grad_norm: float) -> Alarm | None:
    if _finite(loss, grad_norm):
        return None
    what = "loss" if not _finite(loss) else "gradient"
    return Alarm(
        step=step,
        what=f"non_finite_{what}",
        evidence=f"step {step}: loss {loss}, gradient norm {grad_norm}; the update was not applied",
        fix="look in these rows for values that are not finite or not scaled, then at the learning rate",
    )
