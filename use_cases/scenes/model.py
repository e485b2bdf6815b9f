"""The network for `scenes`: a small U-Net (Ronneberger, Fischer & Brox 2015), a probability of each class at each
point.

Augmentation moves and mirrors nothing that would make one digit of another: pictures and masks are rolled together, and
colours exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

MOST_SHIFT = 6
# What dataset.py writes; a service reads no other format either.
FORMATS = ("PNG",)


def fit_preprocessing(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and spread over all points and colours: which colour a digit has says nothing."""
    pictures = _pictures(training["picture"])
    return {"mean": float(pictures.mean()), "spread": float(pictures.std()) or 1.0}


def to_tensors(rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, Tensor]:
    """`picture` `(N, 3, height, width)` float32."""
    scaled = (_pictures(rows["picture"]) - preprocessing["mean"]) / preprocessing["spread"]
    return {"picture": torch.from_numpy(scaled).permute(0, 3, 1, 2).contiguous()}


def _pictures(paths: pd.Series) -> np.ndarray:
    """The files of Paths as `(N, height, width, 3)` from 0 to 1."""
    found = []
    for path in paths:
        with Image.open(path, formats=FORMATS) as picture:
            found.append(np.asarray(picture.convert("RGB"), dtype=np.float32) / 255)
    return np.stack(found)


class SceneNetwork(nn.Module):
    """Logits of the classes at each point, `(N, classes, height, width)`."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.first, self.second = _block(3, channels), _block(channels, 2 * channels)
        self.deepest = _block(2 * channels, 4 * channels)
        self.back, self.out = _block(6 * channels, 2 * channels), _block(3 * channels, channels)
        self.logits = nn.Conv2d(channels, classes, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        first = self.first(inputs["picture"])
        second = self.second(nn.functional.max_pool2d(first, 2))
        deepest = self.deepest(nn.functional.max_pool2d(second, 2))
        back = self.back(torch.cat([_twice(deepest), second], dim=1))
        return self.logits(self.out(torch.cat([_twice(back), first], dim=1)))


def _block(channels: int, wanted: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, wanted, 3, padding=1), nn.GroupNorm(4, wanted), nn.SiLU(),
        nn.Conv2d(wanted, wanted, 3, padding=1), nn.GroupNorm(4, wanted), nn.SiLU(),
    )  # fmt: skip


def _twice(features: Tensor) -> Tensor:
    return nn.functional.interpolate(features, scale_factor=2.0, mode="nearest")


def build_model(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
    """An untrained network; the caller seeds torch first."""
    return SceneNetwork(len(preprocessing["target"]["classes"]), hyperparameters["channels"])


def augment(inputs: dict[str, Tensor], targets: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Each picture rolled by a few points with its mask, and its colours in another order."""
    picture = inputs["picture"]
    moved, masks = torch.empty_like(picture), torch.empty_like(targets)
    shifts = torch.randint(-MOST_SHIFT, MOST_SHIFT + 1, (len(picture), 2), generator=generator).tolist()
    for row, (down, right) in enumerate(shifts):
        colours = torch.randperm(3, generator=generator).to(picture.device)
        moved[row] = picture[row, colours].roll((down, right), dims=(1, 2))
        masks[row] = targets[row].roll((down, right), dims=(0, 1))
    return {"picture": moved}, masks


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each picture's points in nats: logits `(N, classes, height, width)`, masks, to `(N,)`."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none").mean(dim=(1, 2))


def predict(outputs: Tensor) -> Tensor:
    """A probability of each class at each point, `(N, classes, height, width)`."""
    return outputs.softmax(dim=1)
