"""A learning rate for a standard recipe, found on the training's own rows."""

from __future__ import annotations

import math

import torch

from trainworthy.lifecycle.engine.substitution.setup import Setup, mean_loss, trained
from trainworthy.lifecycle.engine.training.prepare import prepare_rows
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec

# Half decades, and the share of a training's updates that each of them gets: together less than half a training.
RATES = tuple(10 ** (number / 2) for number in range(-9, -1))
SHARE, FEWEST = 0.05, 8
SCORED_ROWS = 512


def find_rate(setup: Setup, device: str) -> float:
    """The rate whose few updates leave the lowest loss of the training's own rows; 1e-3 where no rate lowers it."""
    (fold, *_) = setup.folds
    prepared = prepare_rows(setup.job, setup.task, "", fold.training, device)
    rows = torch.linspace(0, len(prepared.rows) - 1, min(SCORED_ROWS, len(prepared.rows))).round().long()
    updates = min(setup.updates, max(FEWEST, round(SHARE * setup.updates)))
    losses = dict[float, float]()
    for rate in RATES:
        steady = setup.with_training(
            optimizer=OptimizerSpec(name="adamw", learning_rate=rate, weight_decay=0.01),
            schedule=ScheduleSpec(warmup=0.0, decay="constant"),
        )
        losses[rate] = mean_loss(setup, prepared, trained(steady, prepared, device, updates), rows)
    finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=lambda rate: finite[rate]) if finite else 1e-3
