"""The training loop: one screen, one update a step, one device read a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lifecycle.jobs import Alarm
from lifecycle.training.curve import Curve
from lifecycle.training.plan import Plan, learning_rate
from lifecycle.use_case import OptimizerSpec, TrainingSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    LossFn = Callable[[Tensor, Tensor], Tensor]


@dataclass
class TrainState:
    """All that changes while training; a checkpoint holds exactly this and the random number generators."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    curve: Curve = field(default_factory=Curve)
    prefix_sha256: str | None = None


@dataclass(frozen=True)
class TrainData:
    """Whole tensors on the training device: inputs by name, each (N, ...), targets (N,), and weights (N,) of mean 1.

    None as weights: every row counts the same.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    weights: Tensor | None = None


def make_optimizer(model: torch.nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    """The declared optimizer over the trainable parameters."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if spec.name == "adamw":
        return torch.optim.AdamW(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay)
    return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=0.9, weight_decay=spec.weight_decay)


def train(
    state: TrainState,
    data: TrainData,
    plan: Plan,
    spec: TrainingSpec,
    loss_fn: LossFn,
    after_step: Callable[[TrainState, float], bool],
) -> Alarm | None:
    """Train from state.step to plan.last_step; `after_step` (checkpoint, progress) may end it by returning True.

    Returns an alarm, with the weights as they were before the bad step, if loss or gradient is not finite.
    """
    state.model.train()
    while state.step < plan.last_step:
        rows = plan.batch(state.step).to(data.targets.device)
        rate = learning_rate(state.step, plan.horizon_steps, spec)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        loss, squared, grad_norm = train_step(state, data, rows, spec.clip_norm, loss_fn)
        alarm = _not_finite(state.step, loss, grad_norm)
        if alarm is not None:
            return alarm
        state.step += 1
        state.curve.add(state.step, len(rows), loss, squared, rate, window=_window(plan))
        if after_step(state, loss):
            return None
    return None


def train_step(
    state: TrainState, data: TrainData, rows: Tensor, clip_norm: float, loss_fn: LossFn
) -> tuple[float, float, float]:
    """One update on the weighted loss. Returns mean loss, mean squared loss (unweighted, before it) and gradient norm.

    The losses are those of the training forward, so each row of the first pass is scored by weights
    that have not seen it. If loss or gradient is not finite, weights and buffers are left as they were.
    """
    import torch

    # The forward pass already changes buffers (the running means of batch norm), and would leave NaN in them.
    buffers = [(buffer, buffer.clone()) for buffer in state.model.buffers()]

    state.optimizer.zero_grad(set_to_none=True)
    losses = loss_fn(state.model({name: tensor[rows] for name, tensor in data.inputs.items()}), data.targets[rows])
    assert losses.shape == (len(rows),), (
        f"loss_fn must give one loss a row, shape ({len(rows)},), got {tuple(losses.shape)}"
    )
    (losses if data.weights is None else losses * data.weights[rows]).mean().backward()
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    # One fused read: a separate .item() for each would wait for the device three times.
    # In float64, since the square of a loss of 2e19 is too large for float32.
    wide = losses.detach().double()
    loss, squared, grad_norm = torch.stack([wide.mean(), wide.square().mean(), norm.double()]).tolist()
    if _finite(loss, grad_norm):
        torch.nn.utils.clip_grads_with_norm_(list(state.model.parameters()), clip_norm, norm)
        state.optimizer.step()
    else:
        for buffer, before in buffers:
            buffer.data.copy_(before)
    return loss, squared, grad_norm


def _finite(*values: float) -> bool:
    return all(abs(value) < float("inf") for value in values)


def _window(plan: Plan) -> int:
    return max(1, (plan.last_step - plan.first_step) // 40)


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
