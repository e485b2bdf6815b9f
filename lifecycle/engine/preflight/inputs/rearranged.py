"""Columns, category codes or pixels in another order: what fits the training rows better than the order given.

What blocks of the training rows show among themselves is drift and chance; an order convicts only if it explains the
validation rows as well as a block is explained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCKS = 6
# Of the columns that are unlike; how unlike, in the blocks' own spread, and how like in their new place.
MOST_OF, UNLIKE, LIKE = 0.8, 4.0, 2.0
CODES_APART = 0.2
# Mean images' correlation, taken from 1: less is a mean image without a direction.
TURNED = 0.02


@dataclass(frozen=True)
class Sides:
    """Columns of one input, (rows, columns) each, and the training's blocks."""

    training: np.ndarray
    held_out: np.ndarray

    @property
    def blocks(self) -> list[np.ndarray]:
        return [block for block in np.array_split(self.training, BLOCKS) if len(block)]


def other_order(sides: Sides) -> str:
    """Whether other columns of the training match the validation's far better than those of the same place."""
    from scipy.optimize import linear_sum_assignment

    columns = sides.training.shape[1]
    if columns < 2:
        return ""
    whole, other = _signature(sides.training), _signature(sides.held_out)
    # How far a column's own blocks lie from it, feature by feature: drift and chance together.
    spread = np.sqrt(np.mean([np.square(_signature(b) - whole) for b in sides.blocks], axis=0))
    spread = np.maximum(spread, 1e-3 * (np.abs(whole).max() + 1e-12))
    cost = np.sqrt(np.square((other[None] - whole[:, None]) / spread[:, None]).mean(axis=2))
    own = cost.diagonal().copy()
    # Columns that are alike must not change places for nothing.
    np.fill_diagonal(cost, np.where(own < LIKE, 0.0, own))
    matched = linear_sum_assignment(np.minimum(cost, 100.0))[1]
    unlike = np.flatnonzero(own > UNLIKE)
    clear = [int(a) for a in unlike if matched[a] != a and cost[a, matched[a]] < LIKE]
    # They must have changed places among themselves: drift makes columns unlike, and seldom makes them each other.
    if len(clear) < 2 or len(clear) < MOST_OF * len(unlike) or {int(matched[a]) for a in clear} != set(clear):
        return ""
    shown = ", ".join(f"{a} at {matched[a]}" for a in clear[:4])
    return f"{len(clear)} of {columns} columns stand in another place: validation has training's column {shown}"


def _signature(values: np.ndarray) -> np.ndarray:
    """What tells columns apart: quantiles, (columns, features), in units that all columns share."""
    quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    return np.concatenate([quantiles, values.mean(axis=0)[None]]).T


def other_codes(sides: Sides) -> str:
    """Whether the categories' numbers mean something else: other shares, but the same shares in another order."""
    for column in range(sides.training.shape[1]):
        values, held = sides.training[:, column], sides.held_out[:, column]
        codes = np.unique(np.concatenate([values, held]))
        if not 3 <= len(codes) <= min(1000, len(values) // 5):
            continue
        here, there = _shares(values, codes), _shares(held, codes)
        usual = max(_between(_shares(block[:, column], codes), here) for block in sides.blocks)
        apart = _between(here, there)
        best = _between(np.sort(here), np.sort(there))
        if apart > CODES_APART + 1.5 * usual and best < apart / 3 and best < 0.1 + usual:
            return (
                f"column {column} has other codes: the shares of its {len(codes)} values differ by {apart:.2f}, and by "
                f"{best:.2f} in another order"
            )
    return ""


def _shares(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(codes, values), minlength=len(codes)) / len(values)


def _between(a: np.ndarray, b: np.ndarray) -> float:
    """Total variation: half of the summed differences of shares."""
    return float(abs(a - b).sum() / 2)


def turned_images(training: Tensor, held_out: Tensor) -> str:
    """Whether validation images are mirrored or turned: their mean image matches training's better that way."""
    if training.ndim < 4 or training.shape[-2] < 4 or training.shape[-1] < 4:
        return ""
    step = max(1, len(training) // 1000), max(1, len(held_out) // 1000)
    mean = training[:: step[0]].float().mean(dim=0)
    blocks = [block.float().mean(dim=0) for block in training[:: step[0]].chunk(BLOCKS)]
    other = held_out[:: step[1]].float().mean(dim=0)
    usual = min(_match(block, mean) for block in blocks)
    turns = {"mirrored": other.flip(-1), "upside down": other.flip(-2), "turned by 180°": other.flip(-1, -2)}
    if training.shape[-1] == training.shape[-2]:
        turns["transposed"] = other.transpose(-1, -2)
        turns["turned by 90°"] = torch.rot90(other, 1, (-2, -1))
        turns["turned by 270°"] = torch.rot90(other, 3, (-2, -1))
    best = max(turns, key=lambda name: _match(turns[name], mean))
    own, turned, usual = (1 - one for one in (_match(other, mean), _match(turns[best], mean), usual))
    if own > max(TURNED, 10 * usual) and turned < max(0.01, 3 * usual) and turned < 0.5 * own:
        return f"images are {best}: their mean image is {turned:.3f} from training's that way, and {own:.3f} as it is"
    return ""


def _match(a: Tensor, b: Tensor) -> float:
    """Correlation of two images, each channel about its own mean."""
    a, b = (one - one.mean(dim=(-2, -1), keepdim=True) for one in (a, b))
    return float((a * b).sum() / (a.norm() * b.norm()).clamp_min(1e-12))
