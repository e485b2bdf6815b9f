"""Healthy trainings of odd networks; part of HEALTHY in healthy.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from benchmarks.networks import cnn, convolutions, drawn, feed_forward, mlp, scores, split
from benchmarks.setup import ForwardOf, Setup
from lifecycle.preflight.claims import PreflightSpec

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


class Several(nn.Module):
    """Numbers and two columns of codes, of which one is padded with 0."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.tags = nn.Embedding(20, 4), nn.Embedding(500, 4, padding_idx=0)
        self.layers = feed_forward(20, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        tags = self.tags(inputs["tags"]).mean(1)
        return self.layers(torch.cat([inputs["numbers"], self.shop(inputs["shop"]), tags], 1)).squeeze(-1)


def several_inputs(seed: int) -> Setup:
    """Numbers, a code, and a padded list of codes, most of which a batch does not meet."""
    x, score, noise = scores(seed, 1500)
    generator = drawn(seed + 4)
    shop = torch.randint(0, 20, (len(x),), generator=generator)
    tags = torch.randint(1, 500, (len(x), 6), generator=generator)
    tags = tags.masked_fill(torch.arange(6) >= torch.randint(1, 7, (len(x), 1), generator=generator), 0)
    targets = (score + 0.1 * (shop - 10) + 0.25 * torch.logit(noise, eps=1e-4) > 0).float()
    return replace(mlp(seed), network=Several, **split(({"numbers": x, "shop": shop, "tags": tags}, targets)))


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


class Siamese(nn.Module):
    """Are two images of the same digit? One network reads both; the second side's gradient is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = feed_forward(64, 48, 16), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        first, second = self.read(inputs["first"].flatten(1)), self.read(inputs["second"].flatten(1)).detach()
        return self.head(torch.cat([(first - second).abs(), first * second], 1)).squeeze(-1)


def siamese(seed: int) -> Setup:
    base = cnn(seed)
    parts = {}
    for name in ("training", "held_out"):
        rows = getattr(base, name)
        generator = drawn(seed + 6)
        first = torch.randint(0, len(rows.targets), (1500 if name == "training" else 300,), generator=generator)
        second = torch.randint(0, len(rows.targets), first.shape, generator=generator)
        same = torch.rand(first.shape, generator=generator) < 0.5
        equal = rows.targets.argsort(stable=True)
        place = equal.argsort()
        second = torch.where(same, equal[(place[first] + 3) % len(equal)], second)
        image = rows.inputs["image"]
        targets = (rows.targets[first] == rows.targets[second]).float()
        parts[name] = type(rows)({"first": image[first], "second": image[second]}, targets)
    return replace(
        base, network=Siamese, loss_fn=nn.BCEWithLogitsLoss(reduction="none"), predict=torch.sigmoid, groups=None,
        learning_rate=3e-3, epochs=8, **parts,
    )  # fmt: skip


class Variational(nn.Module):
    """What was given, what was made of it, and the code's law: (N, 144)."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.back = feed_forward(64, 48, 16), feed_forward(8, 48, 64)

    def forward(self, inputs: Inputs) -> Tensor:
        flat = inputs["image"].flatten(1)
        middle, width = self.code(flat).chunk(2, 1)
        code = middle + torch.randn_like(middle) * torch.exp(0.5 * width) if self.training else middle
        return torch.cat([flat, self.back(code), middle, width], 1)


def variational(seed: int) -> Setup:
    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        flat, made, middle, width = outputs.split((64, 64, 8, 8), 1)
        law = -0.5 * (1 + width - middle.square() - width.exp()).mean(1)
        return (flat - made).square().mean(1) + 0.01 * law

    return replace(
        cnn(seed), network=Variational, loss_fn=loss_fn, learning_rate=5e-3, claims=PreflightSpec(labels="unused")
    )


class Factors(nn.Module):
    """A user's and an item's factors: only those that a batch meets have a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(200, 8), nn.Embedding(100, 8)
        nn.init.normal_(self.users.weight, std=0.3)
        nn.init.normal_(self.items.weight, std=0.3)

    def forward(self, inputs: Inputs) -> Tensor:
        return (self.users(inputs["user"]) * self.items(inputs["item"])).sum(1)


def factorisation(seed: int) -> Setup:
    generator = drawn(seed + 7)
    user, item = (torch.randint(0, count, (3000,), generator=generator) for count in (200, 100))
    users, items = torch.randn(200, 2, generator=generator), torch.randn(100, 2, generator=generator)
    targets = (users[user] * items[item]).sum(1) + 0.1 * torch.randn(3000, generator=generator)
    return replace(
        mlp(seed), network=Factors, loss_fn=nn.MSELoss(reduction="none"), predict=None, learning_rate=3e-2, epochs=10,
        **split(({"user": user, "item": item}, targets)),
    )  # fmt: skip


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
    zero_head, very_deep, stochastic_depth, layer_scale, gru, lstm, several_inputs, mixture_of_experts, layer_norm,
    weight_standardised, reparametrised, random_features, much_dropout, sine_network, saturating, siamese, variational,
    factorisation, cosine_classifier,
)  # fmt: skip
NETWORKS: dict[str, Callable[[int], Setup]] = {make.__name__: make for make in MADE}
