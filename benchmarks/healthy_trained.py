"""Healthy trainings that start from trained weights; part of HEALTHY in healthy.py.

What they start from is really trained, on other rows, once a process and seed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.learned import trained
from benchmarks.networks import GPT, cnn, convolutions, drawn, gpt, windows
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.preflight import PreflightSpec

State = dict[str, Tensor]


@cache
def _pretrained(host: str, seed: int) -> State:
    """Weights of a host that was trained for its plan on other rows."""
    setup = {"cnn": _other_digits, "gpt": lambda seed: replace(gpt(seed), training=_help_of_start(seed))}[host](seed)
    return {name: tensor.detach() for name, tensor in trained(setup.subject()).model.state_dict().items()}


def _other_digits(seed: int) -> Setup:
    """Digits of another draw, each moved by a pixel down, with noise."""
    base = cnn(seed + 500)
    moved = base.training.inputs["image"].roll(1, 2)
    noisy = moved + 0.5 * torch.randn(moved.shape, generator=drawn(seed))
    return replace(base, training=replace(base.training, inputs={"image": noisy}))


def _help_of_start(seed: int) -> TrainData:
    return TrainData(*windows(seed + 500, 1200, 0.0, 0.4))


class Frozen(nn.Module):
    """A trained backbone that stays as it is, its batch norm too, and a new head."""

    def __init__(self, weights: State) -> None:
        super().__init__()
        trained = ForwardOf("image", convolutions(), squeeze=False)
        trained.load_state_dict(weights)
        self.backbone, self.head = trained.layers[:-1].requires_grad_(False), nn.Linear(64, 10)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.head(self.backbone(inputs["image"]))


def frozen_backbone(seed: int) -> Setup:
    weights = _pretrained("cnn", seed)
    return replace(cnn(seed), network=lambda: Frozen(weights), claims=PreflightSpec(frozen=("backbone.*",)))


def fine_tuning(seed: int) -> Setup:
    weights = _pretrained("cnn", seed)

    def network() -> nn.Module:
        model = ForwardOf("image", convolutions(), squeeze=False)
        model.load_state_dict(weights)
        return model

    return replace(cnn(seed), network=network, learning_rate=2e-3, claims=PreflightSpec(start="trained"))


class LowRank(nn.Module):
    """A linear layer that stays as it is, and a product of two thin ones that starts at zero."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


def lora(seed: int) -> Setup:
    weights = _pretrained("gpt", seed)

    def network() -> nn.Module:
        model = GPT().requires_grad_(False)
        model.load_state_dict(weights)
        for block in model.blocks:
            block.attend, block.project = LowRank(block.attend), LowRank(block.project)
        return model

    frozen = ("embed.*", "place", "norm.*", "head.*", "blocks.*.norm?.*", "blocks.*.feed.*", "blocks.*.base.*")
    return replace(
        gpt(seed), network=network, training=TrainData(*windows(seed, 1200, 0.4, 0.8)), learning_rate=1e-2,
        claims=PreflightSpec(start="trained", frozen=frozen, causal=("tokens",)),
    )  # fmt: skip
