"""The loss of some training rows without the noise that training adds: what a network under dropout knows by now.

The loss that a training shows is that of a network of which parts are left out. Under strong dropout it lies at a level
that noise makes, far above what the network knows: 0.73 beside 0.66 on rows whose best constant answer has 0.69.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainworthy.lifecycle.engine.training.monitors.curve import Level
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.engine.training.watching.progressive import row_losses, undisturbed

MOST_ROWS = 512


def loss_without_dropout(
    model: nn.Module, data: TrainData | LoadedRows, recipe: Recipe, batch_size: int
) -> Level | None:
    """Of some training rows, at the weights as they are; None where training adds no noise to any row's loss.

    Asked in parts of a batch. Modes, buffers and random numbers are put back, and what is drawn here decides nothing.
    """
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    noisy, losses = False, []
    try:
        with undisturbed(model):
            for part in spread_rows(data, MOST_ROWS).split(batch_size):
                without, noise = _losses(model, data.take(part).to(device), recipe, compare=not noisy)
                noisy, losses = noisy or noise, [*losses, without]
    # A use case's network may bear no rows but its own batches, and no figure is worth a training.
    except Exception:
        return None
    joined = torch.cat(losses)
    if not noisy or len(joined) < 2 or not bool(joined.isfinite().all()):
        return None
    return Level(float(joined.mean()), float(joined.std()) / math.sqrt(len(joined)))


def _losses(model: nn.Module, rows: TrainData, recipe: Recipe, compare: bool) -> tuple[Tensor, bool]:
    """Each row's loss in evaluation mode, `(N,)`, float64; and whether one is another in training mode, if asked.

    Batch norm stays in evaluation mode: a batch's own statistics are no noise.
    """
    model.eval()
    without = row_losses(model, rows, recipe)
    if not compare:
        return without, False
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
    return without, not torch.equal(row_losses(model, rows, recipe), without)
