"""Healthy trainings without labels; part of HEALTHY in healthy.py."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.networks import CHARACTERS, GPT, cnn, drawn, feed_forward, gpt, mlp, scores, split
from benchmarks.setup import Setup, with_inputs
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


class Pairs(nn.Module):
    """Embeddings of both sides, (N, 2, width), of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = feed_forward(12, 32, 16), feed_forward(12, 32, 16)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return functional.normalize(torch.stack([self.left(inputs["left"]), self.right(inputs["right"])], 1), dim=-1)


def in_batch_negatives(seed: int) -> Setup:
    """Each row's right side is to be found among all those of its batch."""
    x, _, _ = scores(seed, 1500)
    right = x @ torch.randn(12, 12, generator=drawn(seed + 2)) / math.sqrt(12)
    right = right + 0.5 * torch.randn(right.shape, generator=drawn(seed + 3))

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        likeness = outputs[:, 0] @ outputs[:, 1].T / 0.1
        return functional.cross_entropy(likeness, torch.arange(len(likeness), device=likeness.device), reduction="none")

    return replace(
        mlp(seed), network=Pairs, loss_fn=loss_fn, predict=None,
        claims=PreflightSpec(rows="together", labels="unused"),
        **split(({"left": x, "right": right}, torch.zeros(len(x)))),
    )  # fmt: skip


class Autoencoder(nn.Module):
    """What was given and what was made of it, (N, 2, 64)."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.back = feed_forward(64, 48, 8), feed_forward(8, 48, 64)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        flat = inputs["image"].flatten(1)
        return torch.stack([flat, self.back(self.code(flat))], 1)


def autoencoder(seed: int) -> Setup:
    base = cnn(seed)
    return replace(
        base, network=Autoencoder, loss_fn=lambda outputs, targets: (outputs[:, 0] - outputs[:, 1]).square().mean(1),
        learning_rate=5e-3, claims=PreflightSpec(labels="unused"),
        training=replace(base.training, targets=torch.zeros(len(base.training.targets))),
        held_out=replace(base.held_out, targets=torch.zeros(len(base.held_out.targets))),
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


def masked_language_model(seed: int) -> Setup:
    """A seventh of the characters is hidden, drawn anew for each batch, and asked back; every position may see all."""
    base, hidden = gpt(seed), CHARACTERS - 1
    clean = with_inputs(base, lambda found: {"tokens": found["tokens"].clamp(max=hidden - 1)})
    clean = replace(clean, training=TrainData(clean.training.inputs, clean.training.inputs["tokens"]))

    def hide(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        tokens = inputs["tokens"]
        where = torch.rand(tokens.shape, generator=generator).to(tokens.device) < 0.15
        where[:, 0] = True
        return {"tokens": tokens.masked_fill(where, hidden)}, tokens.masked_fill(~where, -100)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
        return losses.sum(1) / (targets >= 0).sum(1)

    inputs, targets = hide(clean.held_out.inputs, clean.held_out.targets, drawn(seed))
    return replace(
        clean, network=lambda: GPT(causal=False), loss_fn=loss_fn, augment=hide, epochs=8,
        held_out=TrainData(inputs, targets), claims=PreflightSpec(labels="unused"),
    )  # fmt: skip
