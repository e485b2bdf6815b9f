"""What the loss says of labels: asked on the CPU, since a class beyond the head ends a CUDA process.

A few rows of the sample through the fresh network, as the loop would send them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.plan import step_seed

ROWS = 16
# A label that so many rows share tells of none of them.
SHARED_ROWS = 20


@dataclass(frozen=True)
class LossProbe:
    """A few rows of extreme labels, and what the fresh network and the loss say of them, on the CPU."""

    subject: Subject
    targets: Tensor
    outputs: Any
    losses: Tensor

    def loss_at(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Each row's loss of these outputs, None if the loss refuses them."""
        try:
            return self.subject.recipe.loss_fn(outputs, targets).detach()
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return None


def ask(subject: Subject) -> LossProbe:
    seed_torch(0)
    model = subject.build().eval()
    inputs, targets = rows_of(subject.training, extreme_rows(subject), "cpu")
    with torch.no_grad():
        outputs, losses = row_losses(replace(subject, device="cpu"), model, inputs, targets)
    if isinstance(outputs, torch.Tensor):
        outputs = outputs.detach().float()
    # A network that takes a derivative in forward has a graph under no_grad too.
    return LossProbe(subject, targets, outputs, losses.detach())


def extreme_rows(subject: Subject) -> Tensor:
    """The rows with the least and the largest label, and some between."""
    targets = subject.training.targets
    flat = targets.reshape(len(targets), -1)
    ends = torch.stack([flat.amin(dim=1).argmin(), flat.amax(dim=1).argmax()]).cpu()
    return torch.cat([ends, spread_rows(subject.training, ROWS - len(ends))])


def class_count(subject: Subject, outputs: Any, targets: Tensor) -> int:
    """Size of the class dimension of the outputs, 0 if there is none: (N, C, ...) or (N, ..., C) for (N, ...).

    A number declared as the label is no class, be it whole: its outputs may be quantiles.
    """
    if subject.kind is not None and not subject.kind.classes:
        return 0
    whole = bool((targets == targets.round()).all()) if targets.is_floating_point() else targets.dtype != torch.bool
    if not isinstance(outputs, torch.Tensor) or not whole or outputs.ndim != targets.ndim + 1:
        return 0
    shape = tuple(outputs.shape)
    if shape[:1] + shape[2:] == tuple(targets.shape):
        return shape[1]
    return shape[-1] if shape[:-1] == tuple(targets.shape) else 0


def is_used(subject: Subject, outputs: Tensor, targets: Tensor, value: float) -> bool:
    """Whether the loss refuses this label, or lets it pull at the outputs; ignore_index does neither."""
    given = outputs.detach().requires_grad_(True)
    try:
        loss = subject.recipe.loss_fn(given, targets.new_full(targets.shape, value).to(targets.dtype))
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return True
    if not loss.requires_grad:
        return False
    loss.sum().backward()
    return given.grad is not None and bool((given.grad.nan_to_num(0.0) != 0).any())


def shown(subject: Subject, ascending: Tensor) -> str:
    """How many labels, and from which to which where enough rows share the ends: a measured one is a row's own."""
    targets = subject.training.targets
    ends = [float(end) for end in (ascending[0], ascending[-1])]
    rows = [(targets == end).reshape(len(targets), -1).any(dim=1).sum() for end in ends]
    named = f" from {ends[0]:.6g} to {ends[1]:.6g}" if min(rows) >= SHARED_ROWS else ""
    if len(ascending) == 1:
        return f"label {ends[0]:.6g}" if named else "one label"
    return f"{len(ascending):,} different labels{named}"


# Enough to measure a column's size, few enough for a network whose batch is one large row.
FEWEST_ROWS, MOST_ROWS = 16, 64


def probe_rows(subject: Subject) -> int:
    """Rows of a forward pass of a check: a batch, within FEWEST_ROWS and MOST_ROWS."""
    return min(MOST_ROWS, max(FEWEST_ROWS, subject.batch_rows()))


def rows_of(data: TrainData, rows: Tensor, device: str | torch.device) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and targets of some rows on a device; copies, so that nothing done to them reaches the sample."""
    rows = rows.to(data.targets.device)
    inputs = {name: tensor[rows.to(tensor.device)].to(device) for name, tensor in data.inputs.items()}
    return inputs, data.targets[rows].to(device)


def step_generator(subject: Subject, step: int) -> Generator:
    """The generator that the loop gives to the augmentation of this step."""
    return torch.Generator().manual_seed(step_seed(subject.recipe.seed, step))


def row_losses(subject: Subject, model: nn.Module, inputs: dict[str, Tensor], targets: Tensor) -> tuple[Any, Tensor]:
    """Outputs and each row's loss, in the recipe's precision."""
    with autocast(subject):
        outputs = model(inputs)
        return outputs, subject.recipe.loss_fn(outputs, targets)
