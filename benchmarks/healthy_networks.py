"""Healthy trainings of odd networks; part of HEALTHY in healthy.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from benchmarks.networks import cnn, convolutions, feed_forward, mlp
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


def numbers(seed: int, layers: Callable[[], nn.Module]) -> Setup:
    """The MLP's rows in another network."""
    return replace(mlp(seed), network=lambda: ForwardOf("numbers", layers()))


def zero_head(seed: int) -> Setup:
    """The last layer starts at zero: at first no gradient goes below it."""

    def layers() -> nn.Module:
        made = feed_forward(12, 32, 1)
        nn.init.zeros_(made[-1].weight)
        nn.init.zeros_(made[-1].bias)
        return made

    return numbers(seed, layers)


class Residual(nn.Module):
    """Blocks beside skip connections, each with a scale that starts at `scale`; some are left out in training."""

    def __init__(self, blocks: int, scale: float, left_out: float = 0.0) -> None:
        super().__init__()
        self.first, self.last, self.left_out = nn.Linear(12, 24), nn.Linear(24, 1), left_out
        self.blocks = nn.ModuleList(feed_forward(24, 24, 24) for _ in range(blocks))
        self.scales = nn.Parameter(torch.full((blocks,), scale))

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.first(inputs["numbers"])
        for block, scale in zip(self.blocks, self.scales, strict=True):
            kept = torch.ones(len(x), 1, device=x.device)
            if self.training and self.left_out:
                kept = (torch.rand_like(kept) > self.left_out).float() / (1 - self.left_out)
            x = x + kept * scale * block(x)
        return self.last(x).squeeze(-1)


def very_deep(seed: int) -> Setup:
    """Thirty-two residual blocks, each of which starts at zero (ReZero)."""
    return replace(mlp(seed), network=lambda: Residual(32, 0.0), learning_rate=3e-3, epochs=4)


def stochastic_depth(seed: int) -> Setup:
    return replace(mlp(seed), network=lambda: Residual(6, 0.3, left_out=0.2))


def layer_scale(seed: int) -> Setup:
    """Residual blocks that start at a ten-thousandth."""
    return replace(mlp(seed), network=lambda: Residual(6, 1e-4))


class Recurrent(nn.Module):
    """Rows of an image read one after the other."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.read, self.head = kind(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        states, _ = self.read(inputs["image"].squeeze(1))
        return self.head(states[:, -1])


def gru(seed: int) -> Setup:
    return replace(cnn(seed), network=lambda: Recurrent(nn.GRU))


def lstm(seed: int) -> Setup:
    return replace(cnn(seed), network=lambda: Recurrent(nn.LSTM))


class Experts(nn.Module):
    """Four networks, of which each row is answered by the best two."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.gate = nn.ModuleList(feed_forward(12, 16, 1) for _ in range(4)), nn.Linear(12, 4)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        values, chosen = self.gate(x).topk(2, dim=1)
        shares = torch.zeros(len(x), 4, device=x.device).scatter(1, chosen, values.softmax(1))
        answers = torch.cat([expert(x) for expert in self.experts], 1)
        return (shares * answers).sum(1)


def mixture_of_experts(seed: int) -> Setup:
    return replace(mlp(seed), network=Experts)


def layer_norm(seed: int) -> Setup:
    layers = lambda: nn.Sequential(
        nn.LayerNorm(12), nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.LayerNorm(32),
        nn.GELU(), nn.Linear(32, 1),
    )  # fmt: skip
    return numbers(seed, layers)


class Standardised(nn.Conv2d):
    """A convolution whose weights are standardised as they are used."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) * math.sqrt(weight[0].numel()) + 1e-5)
        return self._conv_forward(input, weight, self.bias)


def weight_standardised(seed: int) -> Setup:
    def network() -> nn.Module:
        layers = convolutions()
        layers[0], layers[4] = Standardised(1, 8, 3, padding=1), Standardised(8, 16, 3, padding=1)
        layers[1], layers[5] = nn.GroupNorm(2, 8), nn.GroupNorm(4, 16)
        return ForwardOf("image", layers, squeeze=False)

    return replace(cnn(seed), network=network)


def reparametrised(seed: int) -> Setup:
    """Weight norm and spectral norm, whose power iteration changes buffers in each forward pass of training."""

    def layers() -> nn.Module:
        made = feed_forward(12, 32, 1)
        parametrizations.weight_norm(made[0])
        parametrizations.spectral_norm(made[2])
        return made

    return numbers(seed, layers)


def random_features(seed: int) -> Setup:
    """A wide random layer that stays as it is, and a trained one behind it."""

    def layers() -> nn.Module:
        return nn.Sequential(nn.Linear(12, 512).requires_grad_(False), nn.ReLU(), nn.Linear(512, 1))

    return replace(numbers(seed, layers), claims=PreflightSpec(frozen=("layers.0.*",)))


def much_dropout(seed: int) -> Setup:
    layers = lambda: nn.Sequential(
        nn.Linear(12, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1)
    )
    return numbers(seed, layers)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def sine_network(seed: int) -> Setup:
    return numbers(seed, lambda: nn.Sequential(nn.Linear(12, 64), Sine(), nn.Linear(64, 1)))


def saturating(seed: int) -> Setup:
    """Tanh all the way, as networks were before ReLU."""
    return numbers(
        seed, lambda: nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    )


class Normalised(nn.Module):
    """Cosine of the image's and the classes' directions, times a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.classes = nn.Sequential(*convolutions(32)), nn.Parameter(torch.randn(10, 32))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Inputs) -> Tensor:
        read = functional.normalize(self.read(inputs["image"]), dim=1)
        return read @ functional.normalize(self.classes, dim=1).T * self.scale.exp()


def cosine_classifier(seed: int) -> Setup:
    return replace(cnn(seed), network=Normalised)


MADE = (
    zero_head, very_deep, stochastic_depth, layer_scale, gru, lstm, mixture_of_experts, layer_norm,
    weight_standardised, reparametrised, random_features, much_dropout, sine_network, saturating, 
    cosine_classifier,
)  # fmt: skip
NETWORKS: dict[str, Callable[[int], Setup]] = {make.__name__: make for make in MADE}
