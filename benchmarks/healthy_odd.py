"""Healthy trainings whose rows, targets, losses or updates are odd; part of HEALTHY in healthy.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.healthy_networks import NETWORKS
from benchmarks.healthy_several_inputs import SEVERAL
from benchmarks.networks import (
    CHARACTERS,
    UNet,
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
from benchmarks.setup import ForwardOf, Setup, with_inputs, with_targets
from trainworthy.lifecycle.engine.training.state import TrainData

Inputs = dict[str, Tensor]


def numbers(seed: int, outputs: int, targets: Tensor, loss_fn: Callable[[Tensor, Tensor], Tensor]) -> Setup:
    """The MLP with other targets for its rows."""
    x, _, _ = scores(seed, len(targets))
    return replace(
        mlp(seed), network=lambda: ForwardOf("numbers", feed_forward(12, 32, outputs)), loss_fn=loss_fn, predict=None,
        **split(({"numbers": x}, targets)),
    )  # fmt: skip


def huber_regression(seed: int) -> Setup:
    """Prices of some hundred thousand, standardised; Huber's loss."""
    _, score, _ = scores(seed, 1500)
    prices = 300_000 * torch.exp(0.4 * score)
    return numbers(seed, 1, (prices - prices.mean()) / prices.std(), nn.HuberLoss(reduction="none"))


def quantile_regression(seed: int) -> Setup:
    """Three quantiles at once by the pinball loss."""
    _, score, noise = scores(seed, 1500)
    shares = torch.tensor([0.1, 0.5, 0.9])

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        error = targets[:, None] - outputs
        of = shares.to(outputs.device)
        return torch.maximum(of * error, (of - 1) * error).mean(1)

    return numbers(seed, 3, score + 0.5 * torch.logit(noise, eps=1e-4), loss_fn)


def survival(seed: int) -> Setup:
    """Times until an event, of which a third are cut off: log likelihood of an exponential law."""
    _, score, noise = scores(seed, 1500)
    times, ends = -torch.log(noise.clamp(1e-4, 0.999)) * torch.exp(-score), 1.5
    targets = torch.stack([times.clamp(max=ends), (times < ends).float()], 1)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return targets[:, 0] * outputs.exp() - targets[:, 1] * outputs

    return numbers(seed, 1, targets, loss_fn)


def counts(seed: int) -> Setup:
    _, score, _ = scores(seed, 1500)
    targets = torch.poisson(torch.exp(score), generator=drawn(seed + 1))
    return numbers(seed, 1, targets, nn.PoissonNLLLoss(reduction="none"))


def heteroscedastic(seed: int) -> Setup:
    """Mean and log variance; the loss may fall below zero."""
    x, score, _ = scores(seed, 1500)
    targets = score + 0.1 * torch.exp(x[:, 6]) * torch.randn(len(score), generator=drawn(seed + 1))

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        width = outputs[:, 1].clamp(-6, 6)
        return 0.5 * (width + (targets - outputs[:, 0]).square() / width.exp())

    return numbers(seed, 2, targets, loss_fn)


def rare_classes(seed: int) -> Setup:
    """Six classes of 60 % to 2 %."""
    _, score, _ = scores(seed, 2500)
    return numbers(
        seed, 6, torch.bucketize(score, score.quantile(torch.tensor([0.6, 0.8, 0.9, 0.95, 0.98]))),
        nn.CrossEntropyLoss(reduction="none"),
    )  # fmt: skip


def multi_label(seed: int) -> Setup:
    """Five answers of yes and no a row, the rarest of 3 %."""
    x, score, _ = scores(seed, 2000)
    logits = torch.stack([score, x[:, 0], x[:, 1] + x[:, 2], score + x[:, 3], score - x[:, 5]], 1)
    targets = (logits > logits.quantile(torch.tensor([0.5, 0.7, 0.8, 0.9, 0.97]), dim=0).diagonal()).float()
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return numbers(seed, 5, targets, lambda outputs, targets: loss(outputs, targets).mean(1))


def focal_loss(seed: int) -> Setup:
    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return (1 - torch.exp(-losses)).square() * losses

    return replace(mlp(seed), loss_fn=loss_fn, learning_rate=1e-2)


def hinge_loss(seed: int) -> Setup:
    return replace(mlp(seed), loss_fn=lambda outputs, targets: (1 - (2 * targets - 1) * outputs).relu(), predict=None)


def log_probabilities(seed: int) -> Setup:
    """The network ends in log_softmax, and its loss takes that."""
    return replace(
        cnn(seed), loss_fn=nn.NLLLoss(reduction="none"),
        network=lambda: ForwardOf("image", nn.Sequential(*convolutions(), nn.LogSoftmax(dim=1)), squeeze=False),
    )  # fmt: skip


def probabilities(seed: int) -> Setup:
    """The network ends in a sigmoid, and its loss takes that."""
    return replace(
        mlp(seed), loss_fn=nn.BCELoss(reduction="none"), predict=lambda outputs: outputs,
        network=lambda: ForwardOf("numbers", nn.Sequential(feed_forward(12, 32, 1), nn.Sigmoid())),
    )  # fmt: skip


def soft_targets(seed: int) -> Setup:
    """Shares of ten classes instead of a class, as a teacher gives them."""
    loss = nn.CrossEntropyLoss(reduction="none")
    return with_targets(replace(cnn(seed), loss_fn=loss), lambda found: 0.9 * functional.one_hot(found, 10) + 0.01)


def three_class_masks(seed: int) -> Setup:
    """Background, a shape's border and its inside; the pixels around a shape do not count (-100)."""

    def change(masks: Tensor) -> Tensor:
        grown = functional.max_pool2d(masks[:, None], 3, stride=1, padding=1)[:, 0]
        inside = 1 - functional.max_pool2d(1 - masks[:, None], 3, stride=1, padding=1)[:, 0]
        return torch.where(grown > masks, torch.full_like(masks, -100), masks + inside).long()

    loss = nn.CrossEntropyLoss(reduction="none")
    return with_targets(
        replace(unet(seed), network=lambda: UNet(3), loss_fn=lambda o, t: loss(o, t).flatten(1).mean(1)), change
    )


def padded_sequences(seed: int) -> Setup:
    """Windows of unequal length, padded with a character; padded positions do not count (-100)."""
    base = gpt(seed)

    def cut(part: TrainData, shift: int) -> TrainData:
        tokens = part.inputs["tokens"]
        length = torch.randint(6, tokens.shape[1] + 1, (len(tokens), 1), generator=drawn(seed + shift))
        padded = torch.arange(tokens.shape[1]) >= length
        tokens, targets = tokens.masked_fill(padded, CHARACTERS - 1), part.targets.masked_fill(padded, -100)
        return replace(part, inputs={"tokens": tokens}, targets=targets)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
        return losses.sum(1) / (targets >= 0).sum(1)

    return replace(base, loss_fn=loss_fn, training=cut(base.training, 1), held_out=cut(base.held_out, 2))


def mixup(seed: int) -> Setup:
    """Pairs of rows and of their labels, mixed."""

    def mix(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        other = torch.randperm(len(targets), generator=generator).to(targets.device)
        share = float(torch.rand(1, generator=generator)) * 0.3
        image = inputs["image"]
        return {"image": (1 - share) * image + share * image[other]}, (1 - share) * targets + share * targets[other]

    return replace(soft_targets(seed), augment=mix)


def moved_images(seed: int) -> Setup:
    """Images and masks moved and mirrored alike."""

    def move(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        down, across = (torch.randint(-2, 3, (2,), generator=generator)).tolist()
        image, masks = inputs["image"].roll((down, across), (2, 3)), targets.roll((down, across), (1, 2))
        if torch.rand(1, generator=generator) < 0.5:
            image, masks = image.flip(-1), masks.flip(-1)
        return {"image": image}, masks

    return replace(unet(seed), augment=move)


def pixels_of_zero_to_one(seed: int) -> Setup:
    """Images divided by their largest value and no more."""
    return with_inputs(cnn(seed), lambda found: {"image": (found["image"] - found["image"].min()) / 2.66})


def sparse_inputs(seed: int) -> Setup:
    """Words of a text that are there or not: 300 columns, of which 4 % are one, and a column of ones."""
    x, score, noise = scores(seed, 2000)
    words = (x @ torch.randn(12, 300, generator=drawn(5)) / math.sqrt(12) > 1.75).float()
    inputs = {"words": torch.cat([words, torch.ones(len(words), 1)], 1)}
    targets = (score + 0.1 * torch.logit(noise, eps=1e-4) > 0).float()
    return replace(
        mlp(seed), network=lambda: ForwardOf("words", feed_forward(301, 32, 1)), weight_decay=0.3, epochs=4,
        **split((inputs, targets)),
    )  # fmt: skip


def sorted_rows(seed: int) -> Setup:
    """Rows in the order of their label; the plan shuffles them."""
    base = mlp(seed)
    order = base.training.targets.argsort(stable=True)
    inputs = {"numbers": base.training.inputs["numbers"][order]}
    return replace(base, training=TrainData(inputs, base.training.targets[order]))


def plain_descent(seed: int) -> Setup:
    """SGD with momentum at a constant rate, and gradients that are never clipped."""
    return replace(mlp(seed), optimizer="sgd", learning_rate=0.1, warmup=0.0, decay="constant", clip_norm=1e9)


def long_warmup(seed: int) -> Setup:
    return replace(gpt(seed), warmup=0.4)


def linear_model(seed: int) -> Setup:
    return replace(mlp(seed), network=lambda: ForwardOf("numbers", nn.Linear(12, 1)), learning_rate=2e-2)


def whole_batch(seed: int) -> Setup:
    """Each update on all rows."""
    return replace(
        mlp(seed), batch_size=200, epochs=60, learning_rate=3e-3, weight_decay=0.1, **split(tabular(seed, 250))
    )


ROWS_AND_LOSSES = (
    huber_regression, quantile_regression, survival, counts, heteroscedastic, rare_classes, multi_label, focal_loss,
    hinge_loss, log_probabilities, probabilities, soft_targets, three_class_masks, padded_sequences,
    mixup, moved_images, pixels_of_zero_to_one, sparse_inputs, sorted_rows, plain_descent,
    long_warmup, linear_model, whole_batch,
)  # fmt: skip
ODD: dict[str, Callable[[int], Setup]] = {make.__name__: make for make in ROWS_AND_LOSSES} | NETWORKS | SEVERAL
