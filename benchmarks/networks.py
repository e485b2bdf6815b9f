"""The four hosts: an MLP, a CNN, a U-Net with masks and a causal transformer, small, fast and with a tuned recipe.

Each is a function of a seed that gives a Setup; the seed decides rows, split, initial weights and order.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.preflight import PreflightSpec

CHARACTERS, LENGTH = 48, 24
Rows = tuple[dict[str, Tensor], Tensor]


def mlp(seed: int, rows: int = 1500) -> Setup:
    """Twelve standardised numbers, a label of two values that a line does not separate."""
    return Setup(
        network=lambda: ForwardOf("numbers", feed_forward(12, 32, 1)),
        loss_fn=nn.BCEWithLogitsLoss(reduction="none"),
        predict=torch.sigmoid, seed=seed, learning_rate=5e-3, **split(tabular(seed, rows)),
    )  # fmt: skip


def cnn(seed: int) -> Setup:
    """Handwritten digits of 8 × 8 pixels in ten classes; batch norm."""
    return Setup(
        network=lambda: ForwardOf("image", convolutions(), squeeze=False),
        loss_fn=nn.CrossEntropyLoss(reduction="none"),
        seed=seed, learning_rate=1e-2, **split(digits(seed)),
    )  # fmt: skip


def unet(seed: int) -> Setup:
    """Discs and rectangles in noise, 16 × 16 pixels, with their masks."""
    return Setup(network=UNet, loss_fn=pixel_loss, seed=seed, learning_rate=1e-2, epochs=5, **split(shapes(seed)))


def gpt(seed: int) -> Setup:
    """The next character of Python's help texts; the held-out windows are of the last fifth of the text."""
    return Setup(
        network=GPT, loss_fn=token_loss, training=TrainData(*windows(seed, 1200, 0.0, 0.8)),
        held_out=TrainData(*windows(seed + 1000, 240, 0.8, 1.0)), groups=np.arange(240) // 10, seed=seed,
        learning_rate=1e-2, epochs=5, weight_decay=0.1, claims=PreflightSpec(causal=("tokens",)),
    )  # fmt: skip


HOSTS = {"mlp": mlp, "cnn": cnn, "unet": unet, "gpt": gpt}


# ---- rows ------------------------------------------------------------------------------------------------------------


def split(rows: Rows) -> dict:
    """The last fifth of the rows is held out; ten of them in a row are a group."""
    inputs, targets = rows
    first = len(targets) * 4 // 5
    return {
        "training": TrainData({name: tensor[:first] for name, tensor in inputs.items()}, targets[:first]),
        "held_out": TrainData({name: tensor[first:] for name, tensor in inputs.items()}, targets[first:]),
        "groups": np.arange(len(targets) - first) // 10,
    }


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 7919 + 17)


def scores(seed: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Twelve standard normal numbers, a score of unit variance that six of them decide, and uniform noise."""
    generator = drawn(seed)
    x = torch.randn(rows, 12, generator=generator)
    score = 1.5 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3] + torch.sin(2 * x[:, 4]) + 0.5 * x[:, 5].abs()
    return x, (score - score.mean()) / score.std(), torch.rand(rows, generator=generator)


def tabular(seed: int, rows: int, share: float = 0.5) -> Rows:
    """Rows of which `share` are positive."""
    x, score, noise = scores(seed, rows)
    noisy = score + 0.25 * torch.logit(noise, eps=1e-4)
    return {"numbers": x}, (noisy > noisy.quantile(1 - share)).float()


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None]
    return (images - images.mean()) / images.std(), torch.tensor(found.target)


def digits(seed: int) -> Rows:
    images, targets = _digits()
    order = torch.randperm(len(targets), generator=drawn(seed))
    return {"image": images[order]}, targets[order]


def shapes(seed: int, rows: int = 1000, size: int = 16) -> Rows:
    """Images (N, 1, size, size) of unit variance and masks (N, size, size) of zeros and ones."""
    generator = drawn(seed)
    place = torch.arange(size, dtype=torch.float32)
    down, across = torch.meshgrid(place, place, indexing="ij")
    middle = 3 + (size - 6) * torch.rand(rows, 2, 1, 1, generator=generator)
    radius = 2 + 3 * torch.rand(rows, 1, 1, generator=generator)
    far = torch.stack([(down - middle[:, 0]).abs(), (across - middle[:, 1]).abs()])
    disc, box = (far.square().sum(0).sqrt() < radius), (far.amax(0) < radius)
    masks = torch.where(torch.rand(rows, 1, 1, generator=generator) < 0.5, disc, box).float()
    images = masks + 0.5 * torch.randn(rows, size, size, generator=generator)
    return {"image": ((images - images.mean()) / images.std())[:, None]}, masks


@cache
def _text() -> Tensor:
    from pydoc_data.topics import topics

    text = " ".join("".join(topics[name] for name in sorted(topics)).lower().split())
    places = {letter: n for n, (letter, _) in enumerate(Counter(text).most_common(CHARACTERS - 1))}
    return torch.tensor([places.get(letter, CHARACTERS - 1) for letter in text])


def windows(seed: int, rows: int, start: float, end: float) -> Rows:
    """Windows of LENGTH characters and those that follow each, from a part of the text."""
    text = _text()
    first, last = int(start * len(text)), int(end * len(text)) - LENGTH - 1
    begin = torch.randint(first, last, (rows, 1), generator=drawn(seed))
    found = text[begin + torch.arange(LENGTH + 1)]
    return {"tokens": found[:, :-1].contiguous()}, found[:, 1:].contiguous()


# ---- networks and losses ---------------------------------------------------------------------------------------------


def feed_forward(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def convolutions(classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Two levels down and up with a skip connection each; gives one logit a pixel, or `classes`."""

    def __init__(self, classes: int = 1) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(1, 8), double(8, 12), double(12, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, stride=2), nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.join2, self.join1, self.head = double(24, 12), double(16, 8), nn.Conv2d(8, classes, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        first = self.down1(inputs["image"])
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        up = self.join2(torch.cat([self.up2(bottom), second], 1))
        outputs = self.head(self.join1(torch.cat([self.up1(up), first], 1)))
        return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a layer norm and beside a skip connection."""

    def __init__(self, width: int, heads: int, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.attend(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Logits (N, T, characters) of the character after each of `tokens` (N, T)."""

    def __init__(self, width: int = 32, blocks: int = 2, tied: bool = False, causal: bool = True) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(CHARACTERS, width), nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, 4, causal) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CHARACTERS, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        tokens = inputs["tokens"]
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over a row's positions."""
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


def pixel_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over a row's pixels."""
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").flatten(1).mean(1)
