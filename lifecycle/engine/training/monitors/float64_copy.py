"""A copy of a training in float64, of which the loss of few rows is asked at weights that are moved."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.directional_derivative import copy_in_float64, in_float64
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData

# It takes a copy of the model in float64 and its gradients, 16 bytes a weight: of more than this nobody asks.
MOST_WEIGHTS = 2**24
ROWS = 8


def too_large(model: nn.Module) -> bool:
    """Whether the model has more weights than are copied."""
    return sum(parameter.numel() for parameter in model.parameters()) > MOST_WEIGHTS


def copy_and_loss(
    model: nn.Module, data: TrainData | LoadedRows, recipe: Recipe, *, training: bool
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The copy in that mode, and its mean loss on ROWS rows, with equal random numbers each time.

    Raises what a model raises that bears neither a copy nor float64.
    """
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    model_copy, loss_fn = copy_in_float64(model).train(training), copy_in_float64(recipe.loss_fn)
    some = data.take(spread_rows(data, ROWS)).to(device)
    inputs, targets = in_float64(some.inputs), in_float64(some.targets)

    def mean_loss() -> Tensor:
        seed_torch(0)
        return loss_fn(model_copy(inputs), targets).mean()

    return model_copy, mean_loss
