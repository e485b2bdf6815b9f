"""At an alarm: is the gradient of the weights as they are the slope of the loss?"""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainworthy.lifecycle.engine.outputs.gradient_breaks import in_words
from trainworthy.lifecycle.engine.outputs.true_gradient import compare, shares
from trainworthy.lifecycle.engine.training.monitors.float64_copy import copy_and_loss, too_large
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData


class GradientLook(NamedTuple):
    """What was found, in words, "" where nothing was; `wrong` if no healthy training has such a gradient."""

    description: str = ""
    wrong: bool = False


NOTHING = GradientLook()


def look_at_gradient(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe) -> GradientLook:
    """What a copy of the model in float64 says on ROWS rows, in training mode; nothing where that is not known.

    A copy has no hooks of parameters: what these do is not seen here.
    """
    if too_large(model):
        return NOTHING
    try:
        with random_kept():
            comparison = compare(*copy_and_loss(model, data, recipe, training=True))
    # A model may bear neither a copy nor float64, and what is asked here is worth no training.
    except Exception:
        return NOTHING
    break_note = f"; seen in the code: {in_words(comparison.breaks)}" if comparison.breaks else ""
    if comparison.whole == "drowned":
        return GradientLook("two backward passes behind equal forward passes have no direction in common", True)
    if comparison.off:
        return GradientLook(
            f"{shares(comparison.off)}{break_note}", comparison.whole == "all_turned" or comparison.turned_by_nothing
        )
    return NOTHING
