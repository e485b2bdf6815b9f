"""A few rows of the sample through the fresh network, as the loop would send them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.plan import step_seed

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
