"""The network for `digits`: two convolutions over 8 x 8 points, a probability of each of ten digits.

A small shift of a digit is the same digit: in training each batch is shifted by up to a point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

SIDE, MOST_INK = 8, 16.0


def fit_preprocessing(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and spread of the ink over all points; one for all, since a point's place is the network's business."""
    ink = training.to_numpy(dtype=np.float64) / MOST_INK
    return {"points": list(training.columns), "mean": float(ink.mean()), "spread": float(ink.std()) or 1.0}


def to_tensors(rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, Tensor]:
    """`picture` `(N, 1, 8, 8)` float32, row by row from the top left."""
    ink = rows[preprocessing["points"]].to_numpy(dtype=np.float64) / MOST_INK
    scaled = (ink - preprocessing["mean"]) / preprocessing["spread"]
    return {"picture": torch.from_numpy(scaled.astype(np.float32).reshape(-1, 1, SIDE, SIDE))}


class DigitNetwork(nn.Module):
    """Logits of the classes, `(N, classes)`."""

    def __init__(self, classes: int, hyperparameters: Mapping[str, Any]) -> None:
        super().__init__()
        channels, width = hyperparameters["channels"], hyperparameters["width"]
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.SiLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1, stride=2), nn.SiLU(),
            nn.Flatten(), nn.Dropout(hyperparameters["dropout"]),
            nn.Linear(2 * channels * (SIDE // 2) ** 2, width), nn.SiLU(),
            nn.Dropout(hyperparameters["dropout"]), nn.Linear(width, classes),
        )  # fmt: skip

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.layers(inputs["picture"])


def build_model(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
    """An untrained network; the caller seeds torch first."""
    return DigitNetwork(len(preprocessing["target"]["classes"]), hyperparameters)


def augment(inputs: dict[str, Tensor], targets: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Each picture moved by up to a point to any side; what comes in at the edge is paper."""
    picture = inputs["picture"]
    paper = picture.amin()
    wide = nn.functional.pad(picture - paper, (1, 1, 1, 1)) + paper
    down, right = (torch.randint(0, 3, (len(picture),), generator=generator) for _ in range(2))
    places = torch.arange(SIDE)
    rows, columns = down[:, None] + places, right[:, None] + places
    batch = torch.arange(len(picture))[:, None, None]
    moved = wide[batch, 0, rows[:, :, None], columns[:, None, :]]
    return {"picture": moved.unsqueeze(1)}, targets


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each picture in nats: logits `(N, 10)`, places of the digits `(N,)`, to `(N,)`."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predict(outputs: Tensor) -> Tensor:
    """A probability of each digit, `(N, 10)`."""
    return outputs.softmax(dim=1)
