"""Is the loss that of a game: do some parameters learn to raise what others learn to lower?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.directional_derivative import copy_in_float64, in_float64, slopes_of
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData

# By which share the slope along all gradients differs from their size, for each to be asked alone; and what is turned
# round. Of ten pairs of adversaries one is at -1.00 to -1.02. Straight-through, detached weights, held codebooks and
# twins with a held side are between -0.1 and 2.4, but for one of three SimSiam at -3.9.
APART, TURNED = 0.02, -0.5
# It takes a copy of the model in float64 and its gradients, 16 bytes a weight: of more than this nobody asks.
MOST_WEIGHTS = 2**24
ROWS = 8


class LossLook(NamedTuple):
    """`deviates`: its slope along the gradient is not the gradient's size. `game`: a part of it is turned round."""

    deviates: bool = False
    game: bool = False


def is_game(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe) -> bool:
    """True if the gradient of a part of it is turned round, as an adversary's is; False where that is not known."""
    return look_at_loss(model, data, recipe).game


def look_at_loss(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe) -> LossLook:
    """What is seen along all gradients at once, and of each alone if that deviates; nothing where that is not known.

    The loss's value tells no progress then: it rises and falls many times in a training that goes well. A copy of the
    model is asked on ROWS rows, in evaluation mode: what counts passes in training mode does so from the first update
    on.
    """
    if sum(parameter.numel() for parameter in model.parameters()) > MOST_WEIGHTS:
        return LossLook()
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    try:
        with random_kept():
            asked, loss_fn = copy_in_float64(model).eval(), copy_in_float64(recipe.loss_fn)
            some = data.take(spread_rows(data, ROWS)).to(device)
            inputs, targets = in_float64(some.inputs), in_float64(some.targets)

            def mean_loss() -> Tensor:
                torch.manual_seed(0)
                return loss_fn(asked(inputs), targets).mean()

            slopes = slopes_of(asked, mean_loss)
            if abs(slopes.along_gradient().of_gradient - 1) <= APART:
                return LossLook()
            each = [slopes.along_gradient(name).of_gradient for name in slopes.some() if name in slopes.pulled]
            # Where all are turned round nothing plays against it: that is a sign that is wrong.
            return LossLook(deviates=True, game=min(each) <= TURNED and max(each) > 0)
    # A model may bear neither a copy nor float64, and what is asked here is worth no training.
    except Exception:
        return LossLook()
