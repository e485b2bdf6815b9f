"""Is the loss that of a game: do some parameters learn to raise what others learn to lower?

Then its value tells no progress, and what monitors find by it is told as far as it still means something.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch

from trainworthy.lifecycle.engine.outputs.directional_derivative import slopes_of
from trainworthy.lifecycle.engine.training.monitors.curve import Plateau
from trainworthy.lifecycle.engine.training.monitors.float64_copy import copy_and_loss, too_large
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData

# By which share the slope along all gradients differs from their size, for each to be asked alone; and what is turned
# round. Of ten pairs of adversaries one is at -1.00 to -1.02. Straight-through, detached weights, held codebooks and
# twins with a held side are between -0.1 and 2.4, but for one of three SimSiam at -3.9.
DEVIATION, TURNED = 0.02, -0.5

# What goes by a rise of the loss. Of 17 trainings of two networks against each other 13 jumped to above twice the
# start, as far as any fault makes it, and came back.
BY_A_RISE = ("loss_spike", "gradient_spike", "exploding_gradients")


def as_in_a_game(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a game: one by a rise of the loss is a warning, and a loss that does not fall is none."""
    return [
        replace(finding, severity="warning") if finding.monitor in BY_A_RISE else finding
        for finding in findings
        if finding.monitor != Plateau.name
    ]


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
    if too_large(model):
        return LossLook()
    try:
        with random_kept():
            slopes = slopes_of(*copy_and_loss(model, data, recipe, training=False))
            if abs(slopes.along_gradient().of_gradient - 1) <= DEVIATION:
                return LossLook()
            each = [slopes.along_gradient(name).of_gradient for name in slopes.some() if name in slopes.pulled]
            # Where all are turned round nothing plays against it: that is a sign that is wrong.
            return LossLook(deviates=True, game=min(each) <= TURNED and max(each) > 0)
    # A model may bear neither a copy nor float64, and what is asked here is worth no training.
    except Exception:
        return LossLook()
