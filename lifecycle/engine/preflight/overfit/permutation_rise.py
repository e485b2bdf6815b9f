"""How much the loss rises when labels are permuted within their groups: what outputs know of the labels.

Of any outputs, and of a line over the inputs, which needs no network and no update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import lowest_loss
from trainworthy.lifecycle.engine.preflight.overfit.linear_probe import line_basis
from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import Outputs, linked_outputs
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.judging.learned import PERMUTATIONS, permutations_within
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, mean_estimate


@dataclass(frozen=True)
class Rise:
    """Mean rise of the loss by permutation, and how many standard errors, by group, it lies above 0."""

    value: float
    errors: float

    def above(self, other: Rise) -> float:
        """By how many standard errors this one lies above another."""
        apart = [one.value / one.errors if one.errors else 0.0 for one in (self, other)]
        return (self.value - other.value) / max((apart[0] ** 2 + apart[1] ** 2) ** 0.5, 1e-12)

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.errors:.1f} standard errors)"


def rise_of(outputs: Outputs, groups: np.ndarray, values: dict[int, Tensor] | None = None) -> Rise:
    """Rise of the rows' losses when their targets are permuted within groups, the mean of a few permutations."""
    targets, size = torch.cat(outputs.targets), len(outputs.targets[0])
    loss = outputs.losses(values).double()
    rise = torch.zeros_like(loss)
    for order in permutations_within(groups, seed=0):
        permuted = targets[torch.from_numpy(order).to(targets.device)]
        rise += (outputs.losses(values, permuted.split(size)).double() - loss) / PERMUTATIONS
    rises = rise.cpu().numpy()
    if not np.isfinite(rises).all():
        return Rise(0.0, 0.0)
    return Rise(float(rises.mean()), float(rises.mean()) / max(_standard_error(rises, groups), 1e-12))


def _standard_error(values: np.ndarray, groups: np.ndarray) -> float:
    """Of the mean; by group where these are enough for it."""
    if len(np.unique(groups)) >= MINIMUM_GROUPS:
        return mean_estimate(values, groups).standard_error
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")


def line_rise(subject: Subject, data: TrainData, rows: list[Tensor], groups: np.ndarray) -> Rise:
    """The rise of a line over the inputs, each half of the data's groups by a fit on the other half."""
    outputs = linked_outputs(subject, data, rows)
    device = outputs.targets[0].device
    basis = line_basis(data, outputs, rows)
    first = torch.from_numpy(np.unique(groups, return_inverse=True)[1] % 2 == 0).to(device)
    values = {place: torch.zeros_like(outputs.whole(place)) for place in outputs.free}
    for scored in (first, ~first):
        start = {n: torch.zeros(basis.shape[1], *value.shape[1:], device=device) for n, value in values.items()}

        def mean(parameters: dict[int, Tensor], fitted: Tensor = ~scored) -> Tensor:
            return outputs.losses(outputs.spread(basis, parameters))[fitted].mean()

        _, parameters = lowest_loss(start, mean)
        for place, value in outputs.spread(basis, parameters).items():
            values[place][scored] = value[scored].detach()
    return rise_of(outputs, groups, values)
