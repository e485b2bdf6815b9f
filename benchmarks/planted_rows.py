"""Known faults of the configuration and of what enters the network; planted.py lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.networks import cnn, feed_forward, gpt, mlp, scores, split, unet
from benchmarks.setup import ForwardOf, Setup, with_inputs, with_targets
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.plan import Plan

Inputs = dict[str, Tensor]


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
    """The augmentation resizes masks as it resizes images: their borders become parts of a class."""

    def resize(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        share = 0.6 + 0.3 * float(torch.rand(1, generator=generator))
        small = lambda x: functional.interpolate(x, scale_factor=share, mode="bilinear")
        back = lambda x: functional.interpolate(small(x), size=targets.shape[1:], mode="bilinear")
        return {"image": back(inputs["image"])}, back(targets[:, None])[:, 0]

    return replace(unet(seed), augment=resize)


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
