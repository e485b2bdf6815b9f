"""Faults of the network that were held back; planted_held_back.py lists them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.healthy_trained import LowRank
from benchmarks.networks import (
    GPT,
    Block,
    cnn,
    convolutions,
    drawn,
    feed_forward,
    gpt,
    mlp,
    scores,
    split,
    unet,
)
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


# ---- wiring ----------------------------------------------------------------------------------------------------------


def sigmoid_twice(seed: int) -> Setup:
    return replace(
        unet(seed),
        loss_fn=lambda o, t: functional.binary_cross_entropy_with_logits(o.sigmoid(), t, reduction="none").mean((1, 2)),
    )


def cut_off_answers(seed: int) -> Setup:
    """A last ReLU, for targets of which half are below zero."""
    x, score, _ = scores(seed, 1500)
    return replace(
        mlp(seed), loss_fn=lambda outputs, targets: (outputs - targets).square(), predict=None,
        network=lambda: ForwardOf("numbers", nn.Sequential(feed_forward(12, 32, 1), nn.ReLU())),
        **split(({"numbers": x}, score)),
    )  # fmt: skip


class WrongWay(nn.Module):
    """A GRU that takes rows for times, since batch_first was forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.GRU(8, 32), nn.Linear(32, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        states, _ = self.read(inputs["image"].squeeze(1))
        return self.head(states[:, -1])


class OwnNorm(nn.Module):
    """Standardises by the batch it is given, in evaluation too, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        return self.layers((x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-6)).squeeze(-1)


class ByPlace(nn.Module):
    """A code of the position, added along the batch instead of along the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.place = feed_forward(12, 32, 1), nn.Parameter(torch.randn(4096, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        return self.layers(x + self.place[: len(x)]).squeeze(-1)


class SeesNext(Block):
    """The mask's diagonal is off by one: a position sees the one after it."""

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.attend(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril(1)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.norm2(x))


def mask_off_by_one(seed: int) -> Setup:
    def network() -> nn.Module:
        model = GPT()
        model.blocks = nn.ModuleList(SeesNext(32, 4) for _ in range(2))
        return model

    return replace(gpt(seed), network=network)


class MeanOfSequence(GPT):
    """A mean over all positions is added, past the masked attention."""

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.embed(inputs["tokens"])
        return super().forward(inputs) + self.head(x.mean(1, keepdim=True))


def asks_for_what_it_sees(seed: int) -> Setup:
    """The targets were not moved by one: each position is asked for its own character."""
    base = gpt(seed)
    parts = {name: getattr(base, name) for name in ("training", "held_out")}
    return replace(base, **{name: replace(part, targets=part.inputs["tokens"]) for name, part in parts.items()})


class Gated(nn.Module):
    """The second layer's answer is rounded to yes and no: nothing below it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = feed_forward(12, 32, 16), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head((self.body(inputs["numbers"]) > 0).float()).squeeze(-1)


class NoGrad(nn.Module):
    """A part of the forward pass was written for evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = convolutions(16), nn.Linear(16, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            read = self.read(inputs["image"])
        return self.head(read)


class ForgetsAnInput(nn.Module):
    """The embedded shop is made and never used."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.layers = nn.Embedding(20, 4), feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        shop = self.shop(inputs["shop"])
        return self.layers(inputs["numbers"] + 0 * shop.sum(1, keepdim=True)).squeeze(-1)


def input_forgotten(seed: int) -> Setup:
    x, score, _ = scores(seed, 1500)
    shop = torch.randint(0, 20, (1500,), generator=drawn(seed + 4))
    return replace(mlp(seed), network=ForgetsAnInput, **split(({"numbers": x, "shop": shop}, (score > 0).float())))


class NeverEvaluates(ForwardOf):
    """Its own `train` forgets the mode that it is asked for."""

    def train(self, mode: bool = True) -> NeverEvaluates:
        super().train(True)
        return self


def evaluation_as_training(seed: int) -> Setup:
    layers = lambda: nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 1))
    return replace(mlp(seed), network=lambda: NeverEvaluates("numbers", layers()))


class Counting(nn.Module):
    """A mean of all that it saw, evaluated rows too, in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 1)
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layers(x - self.mean).squeeze(-1)


def thawed_backbone(seed: int) -> Setup:
    """The backbone is claimed to be frozen, and trains."""
    return replace(cnn(seed), claims=PreflightSpec(frozen=("layers.0.*", "layers.4.*")))


def both_thin_matrices_zero(seed: int) -> Setup:
    """Low-rank adapters of which both factors start at zero: no gradient ever reaches them."""

    def network() -> nn.Module:
        model = GPT()
        for block in model.blocks:
            block.project = LowRank(block.project)
            nn.init.zeros_(block.project.down)
        return model

    return replace(gpt(seed), network=network, claims=PreflightSpec(frozen=("*.base.*",), causal=("tokens",)))


def masks_broadcast(seed: int) -> Setup:
    """Outputs (N, 1, H, W) less masks (N, H, W) are (N, N, H, W)."""

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, None] - targets).square().mean((1, 2, 3))

    return replace(unet(seed), loss_fn=loss_fn)
