"""Healthy trainings that look odd: HEALTHY, from a name to a function of a seed that gives a Subject.

None may raise an alarm. A claim is made only where a person would have to declare it. tests/benchmarks/test_healthy.py
shows that each learns. More of them lie in healthy_odd.py, and are part of the mapping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.healthy_odd import ODD
from benchmarks.healthy_trained import fine_tuning, frozen_backbone, lora
from benchmarks.healthy_unlabelled import autoencoder, in_batch_negatives, masked_language_model, variational
from benchmarks.networks import (
    GPT,
    HOSTS,
    cnn,
    convolutions,
    drawn,
    feed_forward,
    gpt,
    mlp,
    scores,
    split,
    tabular,
    unet,
)
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def label_smoothing(seed: int) -> Setup:
    smooth = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)
    return replace(cnn(seed), loss_fn=smooth)


def tied_weights(seed: int) -> Setup:
    return replace(gpt(seed), network=lambda: GPT(tied=True))


def sparse_relu(seed: int) -> Setup:
    """Nine of ten activations are zero from the start, by the biases."""

    def network() -> nn.Module:
        layers = nn.Sequential(nn.Linear(12, 256), nn.ReLU(), nn.Linear(256, 1))
        nn.init.normal_(layers[0].weight, std=1 / math.sqrt(12))
        nn.init.constant_(layers[0].bias, -1.28)
        return ForwardOf("numbers", layers)

    return replace(mlp(seed), network=network)


def declared_imbalance(seed: int) -> Setup:
    """One row of twenty is positive, and counts nineteen times."""
    rows = split(tabular(seed, 3000, share=0.05))
    for part in ("training", "held_out"):
        weights = 1 + 18 * rows[part].targets
        rows[part] = replace(rows[part], weights=weights / weights.mean())
    return replace(mlp(seed), learning_rate=3e-3, epochs=3, **rows)


def two_hundred_rows(seed: int) -> Setup:
    return replace(mlp(seed), epochs=20, learning_rate=3e-3, weight_decay=0.1, **split(tabular(seed, 250)))


def restarts(seed: int) -> Setup:
    """Cosine decay that begins anew twice."""
    return replace(
        cnn(seed), schedule=lambda step, steps: 1e-2 * (0.02 + 0.49 * (1 + math.cos(math.pi * (3 * step / steps % 1))))
    )


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(12, 32), feed_forward(32, 32, 32), nn.Linear(32, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        x = checkpoint(self.middle, self.first(inputs["numbers"]), use_reentrant=False)
        return self.last(x.relu()).squeeze(-1)


def activation_checkpointing(seed: int) -> Setup:
    return replace(mlp(seed), network=Checkpointed)


def accumulation(seed: int) -> Setup:
    return replace(unet(seed), batch_size=8, accumulate=4)


def bf16(seed: int) -> Setup:
    return replace(gpt(seed), precision="bf16", epochs=3)


def oversampling(seed: int) -> Setup:
    """One row of twenty is positive; each of them is there ten times in training."""
    rows = split(tabular(seed, 2000, share=0.05))
    found = rows["training"]
    repeated = torch.repeat_interleave(torch.arange(len(found.targets)), (1 + 9 * found.targets).long())
    rows["training"] = found.take(repeated)
    return replace(mlp(seed), learning_rate=3e-3, epochs=4, weight_decay=0.1, **rows)


def multi_task(seed: int) -> Setup:
    """A class and two numbers from one body."""
    x, score, noise = scores(seed, 1500)
    targets = torch.stack([(score + 0.25 * torch.logit(noise, eps=1e-4) > 0).float(), score, x[:, 0] * x[:, 1]], 1)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        class_loss = functional.binary_cross_entropy_with_logits(outputs[:, 0], targets[:, 0], reduction="none")
        return class_loss + 0.5 * (outputs[:, 1:] - targets[:, 1:]).square().mean(1)

    return replace(
        mlp(seed), network=lambda: ForwardOf("numbers", feed_forward(12, 32, 3)), loss_fn=loss_fn,
        predict=lambda outputs: torch.sigmoid(outputs[:, 0]), **split(({"numbers": x}, targets)),
    )  # fmt: skip


def several_optimizers(seed: int) -> Setup:
    """SGD with momentum for the embeddings, AdamW for the rest."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        assert isinstance(model, GPT)
        embeddings = [model.embed.weight, model.place]
        rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in embeddings)]
        return [torch.optim.SGD(embeddings, lr=0.3, momentum=0.9), torch.optim.AdamW(rest, lr=1e-2)]

    return replace(gpt(seed), build_optimizers=optimizers)


def batch_of_one(seed: int) -> Setup:
    return replace(
        mlp(seed), network=lambda: ForwardOf("numbers", normed(12, 32, 1)), batch_size=1, epochs=2,
        optimizer="sgd", learning_rate=1e-3, **split(tabular(seed, 1500)),
    )  # fmt: skip


def normed(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outputs))


def noisy_regression(seed: int) -> Setup:
    """A number of which the inputs explain a sixth."""
    x, score, _ = scores(seed, 3000)
    targets = score + 2.2 * torch.randn(len(score), generator=drawn(seed + 1))
    return replace(
        mlp(seed), loss_fn=squared, predict=None, learning_rate=1e-3, epochs=3, weight_decay=0.1,
        **split(({"numbers": x}, (targets - targets.mean()) / targets.std())),
    )  # fmt: skip


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


def batch_statistics(seed: int) -> Setup:
    """Batch norm that normalises by the batch in evaluation, too."""

    def network() -> nn.Module:
        layers = convolutions()
        layers[1], layers[5] = (nn.BatchNorm2d(n, track_running_stats=False) for n in (8, 16))
        return ForwardOf("image", layers, squeeze=False)

    return replace(cnn(seed), network=network)


def still_statistics(seed: int) -> Setup:
    """Batch norm with momentum 0 in front: its running statistics stay 0 and 1, which the standardised inputs have."""

    def network() -> nn.Module:
        return ForwardOf("numbers", nn.Sequential(nn.BatchNorm1d(12, momentum=0.0), feed_forward(12, 32, 1)))

    return replace(mlp(seed), network=network)


class AlwaysDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.2, training=True)


def monte_carlo_dropout(seed: int) -> Setup:
    def network() -> nn.Module:
        layers = feed_forward(12, 64, 1)
        return ForwardOf(
            "numbers", nn.Sequential(*layers[:2], AlwaysDropout(), *layers[2:4], AlwaysDropout(), layers[4])
        )

    return replace(mlp(seed), network=network, claims=PreflightSpec(evaluation="stochastic"))


NAMED = (
    label_smoothing, frozen_backbone, fine_tuning, lora, tied_weights, sparse_relu, declared_imbalance,
    two_hundred_rows, restarts, activation_checkpointing, accumulation, bf16, oversampling, multi_task,
    several_optimizers, batch_of_one, noisy_regression, batch_statistics, still_statistics, in_batch_negatives,
    autoencoder, monte_carlo_dropout, masked_language_model, variational,
)  # fmt: skip
SETUPS: dict[str, Callable[[int], Setup]] = HOSTS | {make.__name__: make for make in NAMED} | ODD


def _subject_of(make: Callable[[int], Setup]) -> Callable[[int], Subject]:
    return lambda seed: make(seed).subject()


HEALTHY: dict[str, Callable[[int], Subject]] = {name: _subject_of(make) for name, make in SETUPS.items()}


# What the loss of those is that an output could not tell from a good one without looking at the inputs.
CONSTANTS: dict[str, Callable[[Subject], float]] = {
    "in_batch_negatives": lambda subject: math.log(32),
    "log_probabilities": lambda subject: math.log(10),
    "variational": lambda subject: float(subject.held_out.inputs["image"].var(0).mean()),
    "autoencoder": lambda subject: float(subject.held_out.inputs["image"].var(0).mean()),
}
