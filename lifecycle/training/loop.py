"""The training loop: one screen, one update a step, one device read a step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lifecycle.errors import TrainingError
from lifecycle.jobs import Alarm
from lifecycle.training.plan import Plan, step_seed
from lifecycle.training.techniques.scaler import Scaler
from lifecycle.training.watching.clock import COMPUTE, DATA, Clock
from lifecycle.training.watching.curve import Curve

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    LossFn = Callable[[Tensor, Tensor], Tensor]
    Inputs = dict[str, Tensor]
    Augment = Callable[[Inputs, Tensor, torch.Generator], tuple[Inputs, Tensor]]


Precision = Literal["fp32", "bf16", "fp16"]


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

    @property
    def scaler(self) -> Scaler | None:
        """What fp16 scales the loss by, if the state was made for it."""
        found = self.also.get("scaler")
        return found if isinstance(found, Scaler) else None


@dataclass(frozen=True)
class TrainData:
    """Whole tensors on the training device: inputs by name, each (N, ...), targets (N,), and weights (N,) of mean 1.

    None as weights: every row counts the same.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    weights: Tensor | None = None

    def batches(self, plan: Plan, first_step: int) -> Generator[tuple[TrainData, Tensor]]:
        """This data and the row numbers of each step from `first_step` on."""
        for step in range(first_step, plan.last_step):
            yield self, plan.batch(step).to(self.targets.device)

    @property
    def device(self) -> torch.device:
        return self.targets.device

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
    """What the loop trains on: data in memory, or rows that loaders make tensors of (loading.py)."""

    def batches(self, plan: Plan, first_step: int) -> Generator[tuple[TrainData, Tensor]]: ...


@dataclass(frozen=True)
class Recipe:
    """How an update is made of a batch: all that a use case declares of it, and nothing that changes.

    `learning_rate` gives the rate of a step; a parameter group multiplies it by its own `lr_scale`. `augment` changes
    inputs and targets of a batch; its generator depends on (seed, step) only, so that a resumed run draws the same.
    """

    loss_fn: LossFn
    learning_rate: Callable[[int], float]
    clip_norm: float
    precision: Precision = "fp32"
    accumulate: int = 1
    augment: Augment | None = None
    seed: int = 0


def train(
    state: TrainState,
    data: Batches,
    plan: Plan,
    recipe: Recipe,
    after_step: Callable[[TrainState, float], bool],
) -> Alarm | None:
    """Train from state.step to plan.last_step; `after_step` (checkpoint, progress) may end it by returning True.

    Returns an alarm, with the weights as they were before the bad step, if loss or gradient is not finite.
    """
    state.model.train()
    with closing(data.batches(plan, state.step)) as batches:
        for batch, rows in batches:
            rate = recipe.learning_rate(state.step)
            for optimizer in state.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["lr_scale"]
            state.clock.lap(DATA)
            loss, squared, grad_norm = train_step(state, batch, rows, recipe)
            state.clock.lap(COMPUTE)
            alarm = _not_finite(state, loss, grad_norm)
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
    that have not seen it. If loss or gradient is not finite, weights and buffers are left as they were, and a scaler
    lowers its scale.
    """
    import torch

    # The forward pass already changes buffers (the running means of batch norm), and would leave NaN in them.
    buffers = [(buffer, buffer.clone()) for buffer in state.model.buffers()]

    for optimizer in state.optimizers:
        optimizer.zero_grad(set_to_none=True)
    generator = torch.Generator().manual_seed(step_seed(recipe.seed, state.step))
    # Parts of equal size, but for one row: chunk would leave a single row over, on which batch norm can't train.
    parts = rows.tensor_split(min(recipe.accumulate, len(rows))) if recipe.accumulate > 1 else (rows,)
    scaler = state.scaler
    scale = 1.0 if scaler is None else scaler.scale
    losses = [backward(state.model, data, part, recipe, generator, of=len(rows), scale=scale) for part in parts]
    # In float64, since the square of a loss of 2e19 is too large for float32.
    wide = (losses[0] if len(losses) == 1 else torch.cat(losses)).double()
    state.row_losses = wide
    parameters = list(state.model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.is_sparse for gradient in gradients):
        raise TrainingError(f"{', '.join(sparse_gradients(state.model))}: {SPARSE}", fix=DENSE)
    if scale != 1.0:
        torch._foreach_mul_(gradients, 1.0 / scale)  # pyright: ignore[reportPrivateImportUsage]
    norm = torch.nn.utils.get_total_norm(gradients)
    # One fused read: a separate .item() for each would wait for the device three times.
    loss, squared, grad_norm = torch.stack([wide.mean(), wide.square().mean(), norm.double()]).tolist()
    if _finite(loss, grad_norm):
        # Multiplying by 1 would read and write every gradient for nothing. 1e-6 is what torch adds to the norm.
        if grad_norm + 1e-6 > 0.99 * recipe.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(parameters, recipe.clip_norm, norm)
        for optimizer in state.optimizers:
            optimizer.step()
    else:
        for buffer, before in buffers:
            buffer.data.copy_(before)
    if scaler is not None:
        scaler.update(_finite(grad_norm))
    return loss, squared, grad_norm


SPARSE = "the loop clips by the global norm, which sparse gradients do not have"
DENSE = "use sparse=False, and in build_optimizers AdamW or SGD in the place of SparseAdam"


def sparse_gradients(model: torch.nn.Module) -> list[str]:
    """Names of the parameters whose gradient is sparse."""
    return [name for name, p in model.named_parameters() if p.grad is not None and p.grad.is_sparse]


def backward(
    model: torch.nn.Module, data: TrainData, rows: Tensor, recipe: Recipe, generator: torch.Generator, of: int,
    scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """Forward and backward of a part of a batch of `of` rows: adds `scale` times its share of the gradients.

    Returns each row's unweighted loss, `(N,)`.
    """
    inputs, targets = {name: tensor[rows] for name, tensor in data.inputs.items()}, data.targets[rows]
    if recipe.augment is not None:
        inputs, targets = recipe.augment(inputs, targets, generator)
    with autocast(recipe.precision, rows.device.type):
        losses = recipe.loss_fn(model(inputs), targets)
    assert losses.shape == (len(rows),), (
        f"loss_fn must give one loss a row, shape ({len(rows)},), got {tuple(losses.shape)}"
    )
    weighted = losses if data.weights is None else losses * data.weights[rows]
    share = scale * len(rows) / of
    # Most updates are of one part, and two operations more show in a small network's step.
    (weighted.mean() if share == 1.0 else weighted.mean() * share).backward()
    return losses.detach()


def autocast(precision: Precision, device_type: str) -> AbstractContextManager[object]:
    """What forward and loss run in; in float32 nothing, since even a disabled autocast costs time."""
    import torch

    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device_type, torch.bfloat16 if precision == "bf16" else torch.float16)


def _finite(*values: float) -> bool:
    return all(abs(value) < float("inf") for value in values)


def _not_finite(state: TrainState, loss: float, grad_norm: float) -> Alarm | None:
    """An alarm, unless all is finite or a smaller scale may make it so: then only this update is left out."""
    if _finite(loss, grad_norm) or (_finite(loss) and state.scaler is not None and not state.scaler.exhausted):
        return None
    what, step = "loss" if not _finite(loss) else "gradient", state.step
    return Alarm(
        step=step,
        what=f"non_finite_{what}",
        evidence=f"step {step}: loss {loss}, gradient norm {grad_norm}; the update was not applied",
        fix="look in these rows for values that are not finite or not scaled, then at the learning rate",
    )
