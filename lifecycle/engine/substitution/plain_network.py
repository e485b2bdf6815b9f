"""A plain standard network on flattened inputs: what a network is held against, and exchanged for.

plain_places.py has that of answers at many places of a row.

Two hidden layers of ReLU. Numbers are standardized by the training rows, or taken as they are, and whole numbers are
categories with an embedding each. It knows nothing of the shape of pictures or texts: where that carries the signal, it
is a weak reference, and says nothing against a network that is worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.substitution.answer_loss import NUMBERS
from trainworthy.lifecycle.tasks import Kind

WIDTH, EMBEDDING = 128, 8
# Columns of an input: of wider ones every so manieth. And categories of a column: higher ones share the last.
WIDEST, MOST_CATEGORIES = 4096, 256
# Standard deviations, which standardized numbers are clipped to: one wild row must not decide what is learned.
FARTHEST = 10.0


class Input(NamedTuple):
    """What a network has to know of an input: numbers' mean and spread, or each column's count of categories."""

    every: int
    standardized: bool
    mean: list[float]
    spread: list[float]
    categories: list[int]


def described(inputs: Mapping[str, Tensor], *, standardized: bool) -> dict[str, Input]:
    """Of training rows' inputs, each `(N, ...)`; without `standardized`, the network takes numbers as they are."""
    specs = {name: _described(tensor) for name, tensor in inputs.items() if tensor.numel()}
    if standardized:
        return specs
    return {
        name: spec._replace(standardized=False, mean=[0.0] * len(spec.mean), spread=[1.0] * len(spec.mean))
        for name, spec in specs.items()
    }


class Columns(nn.Module):
    """Inputs, flattened and side by side, as `(N, width)` numbers."""

    def __init__(self, inputs: Mapping[str, Input]) -> None:
        super().__init__()
        self.inputs = dict(inputs)
        self.embeddings = nn.ModuleDict()
        for name, spec in self.inputs.items():
            if spec.categories:
                self.embeddings[_key(name)] = nn.Embedding(sum(spec.categories), EMBEDDING)
            else:
                self.register_buffer(f"mean_{_key(name)}", torch.tensor(spec.mean))
                self.register_buffer(f"spread_{_key(name)}", torch.tensor(spec.spread))
        self.width = sum(len(spec.categories) * EMBEDDING or len(spec.mean) for spec in self.inputs.values())

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([self._columns(name, inputs[name]) for name in self.inputs], dim=1)

    def _columns(self, name: str, tensor: Tensor) -> Tensor:
        spec, flat = self.inputs[name], _flat(tensor, self.inputs[name].every)
        if not spec.categories:
            mean, spread = self.get_buffer(f"mean_{_key(name)}"), self.get_buffer(f"spread_{_key(name)}")
            numbers = (flat.float() - mean) / spread
            return numbers.nan_to_num(0.0).clamp(-FARTHEST, FARTHEST) if spec.standardized else numbers
        sizes = torch.tensor(spec.categories, device=flat.device)
        codes = torch.minimum(flat.long().clamp(min=0), sizes - 1) + sizes.cumsum(0) - sizes
        return self.embeddings[_key(name)](codes).flatten(1)


class PlainNetwork(nn.Module):
    """Outputs are logits, or numbers in the labels' unit: `target` is what the kind tells of the labels."""

    def __init__(self, inputs: Mapping[str, Input], kind: Kind, target: Mapping[str, Any]) -> None:
        super().__init__()
        self.columns = Columns(inputs)
        answers = math.prod(kind.answer_shape)
        self.layers = nn.Sequential(
            nn.Linear(self.columns.width, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, answers),
        )
        self.single = not kind.answer_shape
        numbers = kind.loss in NUMBERS
        self.register_buffer("center", torch.tensor(float(target["mean"]) if numbers else 0.0))
        self.register_buffer("scale", torch.tensor(float(target["standard_deviation"]) if numbers else 1.0))

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        outputs = self.layers(self.columns(inputs)) * self.scale + self.center
        return outputs.squeeze(1) if self.single else outputs


def _described(tensor: Tensor) -> Input:
    every = -(-math.prod(tensor.shape[1:]) // WIDEST)
    flat = _flat(tensor, every)
    if not tensor.is_floating_point():
        highest = flat.long().amax(dim=0).clamp(0, MOST_CATEGORIES - 1)
        return Input(every, False, [], [], [int(code) + 1 for code in highest])
    known = flat.double().where(flat.isfinite(), torch.nan)
    mean = known.nanmean(dim=0).nan_to_num(0.0)
    spread = (known - mean).square().nanmean(dim=0).sqrt().nan_to_num(0.0)
    return Input(every, True, mean.tolist(), torch.where(spread > 0, spread, 1.0).tolist(), [])


def _flat(tensor: Tensor, every: int) -> Tensor:
    """Columns of an input, `(N, F)`."""
    return tensor.reshape(len(tensor), -1)[:, ::every]


def _key(name: str) -> str:
    """A module may not have a dot in its name."""
    return name.replace(".", "_")
