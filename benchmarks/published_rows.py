"""Small rows for the networks of pytorch/examples: made here, or scikit-learn's digits."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainworthy.lifecycle.engine.training.state import TrainData

WORDS, LENGTH, LONGEST, PADDING = 60, 20, 12, 1


@functools.cache
def digits(size: int, normalised: bool = True) -> tuple[TrainData, TrainData]:
    """Images (N, 1, size, size) from 0 to 1, or as the examples standardise them: 1,500 to train on and 297 others."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    small = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    images = functional.interpolate(small, size=(size, size), mode="bilinear", align_corners=False).clamp(0, 1)
    images = (images - 0.1307) / 0.3081 if normalised else images
    targets = torch.tensor(found.target)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    first, rest = order[:1500], order[1500:]
    return TrainData({"image": images[first]}, targets[first]), TrainData({"image": images[rest]}, targets[rest])


def words() -> tuple[TrainData, TrainData]:
    """Sequences of words, each of which is followed by one of four, more often by the first of these."""
    generator = torch.Generator().manual_seed(5)
    after = torch.randint(WORDS, (WORDS, 4), generator=generator)
    rows = torch.randint(WORDS, (1600, 1), generator=generator)
    for _ in range(LENGTH):
        chosen = torch.multinomial(torch.tensor([0.6, 0.2, 0.1, 0.1]), len(rows), True, generator=generator)
        rows = torch.cat([rows, after[rows[:, -1], chosen][:, None]], 1)
    parts = rows[:1400], rows[1400:]
    first, second = (TrainData({"tokens": part[:, :-1].contiguous()}, part[:, 1:].contiguous()) for part in parts)
    return first, second


def reversed_words() -> tuple[TrainData, TrainData]:
    """Words and the same in reverse, between a first word 2 and a last word 3, padded to the longest."""
    generator = torch.Generator().manual_seed(6)
    rows = 1600
    source, target = (torch.full((rows, LONGEST + 2), PADDING) for _ in range(2))
    for row, length in enumerate(torch.randint(3, LONGEST + 1, (rows,), generator=generator).tolist()):
        sentence = torch.randint(4, 24, (length,), generator=generator)
        for line, one in ((source, sentence), (target, sentence.flip(0))):
            line[row, : length + 2] = torch.cat([torch.tensor([2]), one, torch.tensor([3])])

    def part(of: slice) -> TrainData:
        return TrainData({"source": source[of], "target": target[of, :-1].contiguous()}, target[of, 1:].contiguous())

    return part(slice(1400)), part(slice(1400, None))


def graph(*, sparse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Features, classes and neighbours of 300 nodes of which those of a class are more often neighbours.

    Neighbours as 0 and 1, each its own; `sparse`: divided by the roots of their numbers, in a sparse matrix.
    """
    generator = torch.Generator().manual_seed(8)
    labels = torch.randint(5, (300,), generator=generator)
    chance = torch.where(labels[:, None] == labels, 0.06, 0.005)
    drawn = (torch.rand(300, 300, generator=generator) < chance).float().triu(1)
    neighbours = drawn + drawn.T + torch.eye(300)
    features = (
        torch.rand(300, 40, generator=generator) < 0.05 + 0.15 * (torch.arange(40) % 5 == labels[:, None])
    ).float()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    if not sparse:
        return features, labels, neighbours
    root = neighbours.sum(1).rsqrt()
    return features, labels, (root[:, None] * neighbours * root).to_sparse()


def waves() -> Tensor:
    """Sines with phases of their own, (30, 41) in float64."""
    phases = torch.randint(-80, 80, (30, 1), generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return torch.sin((torch.arange(41, dtype=torch.float64) + phases) / 4)


def patterns(rows: int, seed: int) -> Tensor:
    """Coloured pictures (N, 3, 32, 32) from 0 to 255, smooth as photographs are."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(rows, 3, 6, 6, generator=generator)
    return 255 * functional.interpolate(coarse, size=(32, 32), mode="bicubic", align_corners=False).clamp(0, 1)
