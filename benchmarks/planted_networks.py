"""Known faults of the network, its start, its repetition and its updates; planted.py lists them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import GPT, cnn, convolutions, drawn, feed_forward, gpt, mlp, scores, split
from benchmarks.setup import ForwardOf, Setup, with_targets
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


# ---- wiring ----------------------------------------------------------------------------------------------------------


def softmax_twice(seed: int) -> Setup:
    return replace(
        cnn(seed), network=lambda: ForwardOf("image", nn.Sequential(*convolutions(), nn.Softmax(1)), squeeze=False)
    )


def softmax_over_rows(seed: int) -> Setup:
    """Probabilities over the batch instead of over the classes, for a loss that takes their logarithm."""
    return replace(
        cnn(seed), loss_fn=nn.NLLLoss(reduction="none"),
        network=lambda: ForwardOf("image", nn.Sequential(*convolutions(), nn.LogSoftmax(0)), squeeze=False),
    )  # fmt: skip


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = feed_forward(12, 32, 16), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.body(inputs["numbers"]).detach()).squeeze(-1)


def frozen_by_mistake(seed: int) -> Setup:
    def network() -> nn.Module:
        model = GPT()
        model.blocks.requires_grad_(False)
        return model

    return replace(gpt(seed), network=network)


class Unregistered(nn.Module):
    """Its layers lie in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = [nn.Linear(32, 32), nn.Linear(32, 32)]
        self.first, self.last = nn.Linear(12, 32), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.first(inputs["numbers"]).relu()
        for layer in self.middle:
            x = layer(x).relu()
        return self.last(x).squeeze(-1)


class MixedRows(nn.Module):
    """A reshape instead of a transpose: values of other rows come in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 32), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.first(inputs["numbers"]).relu()
        return self.last(x.T.reshape(x.shape)).squeeze(-1)


def no_causal_mask(seed: int) -> Setup:
    return replace(gpt(seed), network=lambda: GPT(causal=False))


class AlwaysDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.3)


def dropout_always(seed: int) -> Setup:
    layers = lambda: nn.Sequential(nn.Linear(12, 32), nn.ReLU(), AlwaysDropout(), nn.Linear(32, 1))
    return replace(mlp(seed), network=lambda: ForwardOf("numbers", layers()))


def labels_forgotten(seed: int) -> Setup:
    """The loss compares the outputs with themselves."""
    return replace(
        mlp(seed),
        loss_fn=lambda outputs, targets: functional.binary_cross_entropy_with_logits(
            outputs, (outputs > 0).float(), reduction="none"
        ),
    )


class Broadcast(nn.Module):
    """Outputs (N, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.layers(inputs["numbers"])


def broadcast_targets(seed: int) -> Setup:
    """Outputs (N, 1) less targets (N,) are (N, N): each row meets all labels."""
    x, score, _ = scores(seed, 1500)
    return replace(
        mlp(seed), network=Broadcast, loss_fn=lambda outputs, targets: (outputs - targets).square().mean(1),
        predict=None, **split(({"numbers": x}, score)),
    )  # fmt: skip


# ---- start, determinism, learning rate, overfit ----------------------------------------------------------------------


def exploding_start(seed: int) -> Setup:
    def network() -> nn.Module:
        model = ForwardOf("numbers", feed_forward(12, 32, 1))
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=8)
        return model

    return replace(mlp(seed), network=network)


def dead_relu(seed: int) -> Setup:
    def network() -> nn.Module:
        layers = feed_forward(12, 32, 1)
        nn.init.constant_(layers[0].bias, -30)
        return ForwardOf("numbers", layers)

    return replace(mlp(seed), network=network)


def summed_loss(seed: int) -> Setup:
    """Each row is given the sum of the batch's losses."""
    loss = nn.BCEWithLogitsLoss(reduction="sum")
    return replace(mlp(seed), loss_fn=lambda outputs, targets: loss(outputs, targets).expand(len(targets)))


def weights_not_loaded(seed: int) -> Setup:
    """Claims trained weights, but their names did not match and were skipped."""
    return replace(cnn(seed), learning_rate=1e-3, claims=PreflightSpec(start="trained"))


def seeded_by_nothing(seed: int) -> Setup:
    """The weights are drawn from fresh entropy."""

    def network() -> nn.Module:
        model, fresh = ForwardOf("numbers", feed_forward(12, 32, 1)), np.random.default_rng()
        for parameter in model.parameters():
            parameter.data = torch.tensor(fresh.normal(size=parameter.shape) * 0.2, dtype=torch.float32)
        return model

    return replace(mlp(seed), network=network)


class Hidden(nn.Module):
    """A running mean that is subtracted, and is no buffer: a checkpoint does not hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.mean = feed_forward(12, 32, 1), torch.full((12,), 1.0)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"] + 1
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layers(x - self.mean).squeeze(-1)


def thousandfold_rate(seed: int) -> Setup:
    return replace(mlp(seed), learning_rate=5.0)


def thousandth_rate(seed: int) -> Setup:
    return replace(gpt(seed), learning_rate=1e-5)


def wrong_sign(seed: int) -> Setup:
    """The log likelihood itself is minimised."""
    return replace(
        cnn(seed), loss_fn=lambda outputs, targets: -functional.cross_entropy(outputs, targets, reduction="none")
    )


def shuffled_labels(seed: int) -> Setup:
    """The labels were shuffled apart from their rows."""
    return with_targets(cnn(seed), lambda targets: targets[torch.randperm(len(targets), generator=drawn(seed + 9))])
