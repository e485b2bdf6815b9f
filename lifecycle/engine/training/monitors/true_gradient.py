"""At an alarm: is the gradient of the weights as they are the slope of the loss?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.directional_derivative import copy_in_float64, in_float64
from trainworthy.lifecycle.engine.outputs.gradient_breaks import in_words
from trainworthy.lifecycle.engine.outputs.true_gradient import compare, shares
from trainworthy.lifecycle.engine.training.monitors.game import MOST_WEIGHTS, ROWS
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData


class GradientLook(NamedTuple):
    """What was found, in words, "" where nothing was; `wrong` if no healthy training has such a gradient."""

    told: str = ""
    wrong: bool = False


NOTHING = GradientLook()


def look_at_gradient(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe) -> GradientLook:
    """What a copy of the model in float64 says on ROWS rows, in training mode; nothing where that is not known.

    A copy has no hooks of parameters: what these do is not seen here.
    """
    if sum(one.numel() for one in model.parameters()) > MOST_WEIGHTS:
        return NOTHING
    device = next((one.device.type for one in model.parameters()), "cpu")
    try:
        with random_kept():
            asked, loss_fn = copy_in_float64(model).train(), copy_in_float64(recipe.loss_fn)
            some = data.take(spread_rows(data, ROWS)).to(device)
            inputs, targets = in_float64(some.inputs), in_float64(some.targets)

            def mean_loss() -> Tensor:
                torch.manual_seed(0)
                return loss_fn(asked(inputs), targets).mean()

            found = compare(asked, mean_loss)
    # A model may bear neither a copy nor float64, and what is asked here is worth no training.
    except Exception:
        return NOTHING
    beside = f"; seen in the code: {in_words(found.breaks)}" if found.breaks else ""
    if found.whole == "drowned":
        return GradientLook("two backward passes behind equal forward passes have no direction in common", True)
    if found.off:
        return GradientLook(f"{shares(found.off)}{beside}", found.whole == "all_turned" or found.turned_by_nothing)
    return NOTHING
