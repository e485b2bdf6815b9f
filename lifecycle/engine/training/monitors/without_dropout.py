"""The loss of some training rows without the noise that training adds: what a network under dropout knows by now.

The loss that a training shows is that of a network of which parts are left out. Under strong dropout it lies at a level
that noise makes, far above what the network knows: 0.73 beside 0.66 on rows whose best constant answer has 0.69.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainworthy.lifecycle.engine.training.monitors.curve import Level
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.engine.training.watching.progressive import row_losses, undisturbed

MOST_ROWS = 512


class WithoutDropout:
    """The loss of some training rows at the weights as they are; None where training adds no noise to any row's loss.

    Asked in parts of a batch. Modes, buffers and random numbers are put back, and what is drawn here decides nothing.
    Whether there is noise is asked once, of a copy: a pass in training mode may count up what the network keeps of its
    own, and then its training would go another way for being watched.
    """

    def __init__(self, model: nn.Module, data: TrainData | LoadedRows, recipe: Recipe, batch_size: int) -> None:
        self._model, self._recipe = model, recipe
        self._data, self._batch_size = data, batch_size
        self._noisy: bool | None = None

    def __call__(self) -> Level | None:
        # A use case's network may bear no rows but its own batches, or no copy, and no figure is worth a training.
        try:
            if self._noisy is None:
                self._noisy = self._adds_noise()
            joined = self._losses() if self._noisy else None
        except Exception:
            self._noisy = False
            return None
        if joined is None or len(joined) < 2 or not bool(joined.isfinite().all()):
            return None
        return Level(float(joined.mean()), float(joined.std()) / math.sqrt(len(joined)))

    def _parts(self) -> Iterator[TrainData]:
        device = next((parameter.device.type for parameter in self._model.parameters()), "cpu")
        for part in spread_rows(self._data, MOST_ROWS).split(self._batch_size):
            yield self._data.take(part).to(device)

    def _losses(self) -> Tensor:
        """Each row's loss in evaluation mode, `(N,)`, float64."""
        with undisturbed(self._model):
            return torch.cat([row_losses(self._model, rows, self._recipe) for rows in self._parts()])

    def _adds_noise(self) -> bool:
        """Whether any row's loss is another in training mode. Batch norm's own statistics are no noise."""
        with undisturbed(self._model):
            copied = deepcopy(self._model)
            for rows in self._parts():
                copied.eval()
                without = row_losses(copied, rows, self._recipe)
                copied.train()
                for module in copied.modules():
                    if isinstance(module, _BatchNorm):
                        module.eval()
                if not torch.equal(row_losses(copied, rows, self._recipe), without):
                    return True
        return False
