"""Planted faults: from a name to a function of a seed that gives a Subject, and the checks that may tell of it.

Each is a host with one thing changed that raises no exception in the loop by itself, save where it is said. At least
one of the named checks (patterns, `wiring.*`) must fail. These were known while the thresholds were written; those of
planted_held_back.py were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.networks import GPT, cnn, convolutions, drawn, feed_forward, gpt, mlp, scores, split, unet
from benchmarks.setup import ForwardOf, Setup, with_inputs, with_targets
from lifecycle.preflight.claims import PreflightSpec
from lifecycle.preflight.subject import Subject
from lifecycle.training.plan import Plan

Inputs = dict[str, Tensor]
Fault = tuple[Callable[[int], Setup], tuple[str, ...]]
Planted = tuple[Callable[[int], Subject], tuple[str, ...]]


def planted(faults: Mapping[str, Fault]) -> dict[str, Planted]:
    """The faults as subjects."""

    def subject_of(make: Callable[[int], Setup]) -> Callable[[int], Subject]:
        return lambda seed: make(seed).subject()

    return {name: (subject_of(make), ids) for name, (make, ids) in faults.items()}


# ---- configuration ---------------------------------------------------------------------------------------------------


def zero_rate_early(seed: int) -> Setup:
    """The schedule was written for half of the run."""
    return replace(mlp(seed), schedule=lambda step, steps: 5e-3 * max(0.0, 1 - step / (0.5 * steps)))


def warmup_beyond_the_run(seed: int) -> Setup:
    return replace(gpt(seed), schedule=lambda step, steps: 1e-2 * min(1.0, (step + 1) / 10_000))


def only_the_head(seed: int) -> Setup:
    """The optimizer is given the last layer's parameters, and nothing says that the others stay."""
    return replace(
        cnn(seed),
        build_optimizers=lambda model: [torch.optim.AdamW(model.get_submodule("layers.9").parameters(), 1e-2)],
    )


def half_precision_weights(seed: int) -> Setup:
    def network() -> nn.Module:
        class Half(ForwardOf):
            def forward(self, inputs: Inputs) -> Tensor:
                return super().forward({name: tensor.bfloat16() for name, tensor in inputs.items()}).float()

        return Half("numbers", feed_forward(12, 32, 1)).to(torch.bfloat16)

    return replace(mlp(seed), network=network)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def one_nan(seed: int) -> Setup:
    def spoil(found: Inputs) -> Inputs:
        numbers = found["numbers"].clone()
        numbers[7::40, 3] = float("nan")
        return {"numbers": numbers}

    return with_inputs(mlp(seed), spoil)


def black_images(seed: int) -> Setup:
    """The loader gives the same empty image for every row."""
    return with_inputs(cnn(seed), lambda found: {"image": torch.zeros_like(found["image"])})


def raw_numbers(seed: int) -> Setup:
    """Nobody standardised them: one column in thousands, one in millions."""
    scale = torch.tensor([1.0, 1e3, 1, 1, 5e6, 1, 1, 1, 1e4, 1, 1, 1])
    return with_inputs(mlp(seed), lambda found: {"numbers": found["numbers"] * scale + 2 * scale})


def classes_from_one(seed: int) -> Setup:
    """Class ids from 1 to 10 for ten outputs; the loss raises."""
    return with_targets(cnn(seed), lambda targets: targets + 1)


def one_class(seed: int) -> Setup:
    return with_targets(cnn(seed), lambda targets: torch.full_like(targets, 3))


def other_scale_in_validation(seed: int) -> Setup:
    """Training is standardised, validation is not."""
    base = cnn(seed)
    image = base.held_out.inputs["image"]
    return replace(base, held_out=replace(base.held_out, inputs={"image": image * 96 + 80}))


def images_flipped_alone(seed: int) -> Setup:
    """The augmentation mirrors images and leaves their masks."""

    def flip(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        chosen = torch.rand(len(targets), generator=generator) < 0.5
        image = inputs["image"]
        return {"image": torch.where(chosen[:, None, None, None], image.flip(-1), image)}, targets

    return replace(unet(seed), augment=flip)


def interpolated_masks(seed: int) -> Setup:
    """Masks of the classes 0 and 2 are resized as images are: class 1 appears around each shape."""

    def resize(masks: Tensor) -> Tensor:
        small = functional.interpolate(masks[:, None] * 2, scale_factor=0.75, mode="bilinear")
        return functional.interpolate(small, size=masks.shape[1:], mode="bilinear")[:, 0]

    loss = lambda outputs, targets: (outputs - targets).square().flatten(1).mean(1)
    return with_targets(replace(unet(seed), loss_fn=loss), resize)


def raw_prices(seed: int) -> Setup:
    """A regression on prices of some hundred thousand."""
    x, score, _ = scores(seed, 1500)
    return replace(
        mlp(seed), loss_fn=lambda outputs, targets: (outputs - targets).square(), predict=None,
        **split(({"numbers": x}, 300_000 * torch.exp(0.4 * score))),
    )  # fmt: skip


class SameBatch(Plan):
    """The loader is made anew for each update, and gives its first batch."""

    def batch(self, step: int) -> Tensor:
        return super().batch(0)


class Unshuffled(Plan):
    def batch(self, step: int) -> Tensor:
        first = step % self.steps_per_epoch * self.batch_size
        return torch.arange(first, first + self.batch_size)


def other_plan(make: Callable[[int], Setup], kind: type[Plan]) -> Callable[[int], Subject]:
    def subject(seed: int) -> Subject:
        found = make(seed).subject()
        return replace(found, plan=kind(**found.plan.model_dump()))

    return subject


def sorted_by_label(seed: int) -> Setup:
    base = cnn(seed)
    order = base.training.targets.argsort(stable=True)
    images = {"image": base.training.inputs["image"][order]}
    return replace(base, training=replace(base.training, inputs=images, targets=base.training.targets[order]))


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


KNOWN: dict[str, Fault] = {
    "zero_rate_early": (zero_rate_early, ("configuration.*",)),
    "warmup_beyond_the_run": (warmup_beyond_the_run, ("configuration.*", "learning_rate.*")),
    "only_the_head": (only_the_head, ("configuration.*", "wiring.gradients", "wiring.frozen")),
    "half_precision_weights": (half_precision_weights, ("configuration.*",)),
    "one_nan": (one_nan, ("inputs.*",)),
    "black_images": (black_images, ("inputs.*",)),
    "raw_numbers": (raw_numbers, ("inputs.*", "start.*")),
    "classes_from_one": (classes_from_one, ("inputs.*",)),
    "one_class": (one_class, ("inputs.*",)),
    "other_scale_in_validation": (other_scale_in_validation, ("inputs.*",)),
    "images_flipped_alone": (images_flipped_alone, ("inputs.*",)),
    "interpolated_masks": (interpolated_masks, ("inputs.*",)),
    "raw_prices": (raw_prices, ("inputs.*", "start.*")),
    "softmax_twice": (softmax_twice, ("wiring.*",)),
    "softmax_over_rows": (softmax_over_rows, ("wiring.*", "start.reduction")),
    "detached": (lambda seed: replace(mlp(seed), network=Detached), ("wiring.*",)),
    "frozen_by_mistake": (frozen_by_mistake, ("configuration.*", "wiring.*")),
    "unregistered": (lambda seed: replace(mlp(seed), network=Unregistered), ("configuration.*", "wiring.*")),
    "mixed_rows": (lambda seed: replace(mlp(seed), network=MixedRows), ("wiring.*", "start.reduction")),
    "no_causal_mask": (no_causal_mask, ("wiring.causal",)),
    "dropout_always": (dropout_always, ("wiring.*",)),
    "labels_forgotten": (labels_forgotten, ("wiring.*",)),
    "broadcast_targets": (broadcast_targets, ("wiring.*", "start.reduction")),
    "exploding_start": (exploding_start, ("start.*",)),
    "dead_relu": (dead_relu, ("start.*", "wiring.*")),
    "summed_loss": (summed_loss, ("start.*", "wiring.rows_apart")),
    "weights_not_loaded": (weights_not_loaded, ("start.*",)),
    "seeded_by_nothing": (seeded_by_nothing, ("determinism.*",)),
    "hidden_state": (lambda seed: replace(mlp(seed), network=Hidden), ("determinism.*", "wiring.*")),
    "thousandfold_rate": (thousandfold_rate, ("learning_rate.*", "overfit.*")),
    "thousandth_rate": (thousandth_rate, ("learning_rate.*", "overfit.*")),
    "wrong_sign": (wrong_sign, ("start.*", "learning_rate.*", "overfit.*", "wiring.*")),
    "shuffled_labels": (shuffled_labels, ("overfit.*",)),
}
PLANTED: dict[str, Planted] = planted(KNOWN) | {
    "same_batch": (other_plan(mlp, SameBatch), ("inputs.*",)),
    "sorted_batches": (other_plan(sorted_by_label, Unshuffled), ("inputs.*",)),
}
