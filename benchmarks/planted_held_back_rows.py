"""Faults of the configuration, of what enters the network and of its start that were held back;
planted_held_back.py lists them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from benchmarks.networks import (
    CHARACTERS,
    cnn,
    convolutions,
    digits,
    drawn,
    feed_forward,
    gpt,
    mlp,
    scores,
    split,
    unet,
)
from benchmarks.setup import ForwardOf, Setup, with_inputs, with_targets

Inputs = dict[str, Tensor]


# ---- configuration and learning rate ---------------------------------------------------------------------------------


def decay_per_update(seed: int) -> Setup:
    """A decay by 0.9 that was meant for each epoch is made at each update."""
    return replace(gpt(seed), schedule=lambda step, steps: 1e-2 * 0.9**step)


def cosine_in_degrees(seed: int) -> Setup:
    """The angle runs to 180, in radians: the rate swings."""
    return replace(mlp(seed), schedule=lambda step, steps: 5e-3 * math.cos(180 * step / steps))


def other_models_optimizer(seed: int) -> Setup:
    """The optimizer holds the parameters of another model than the one that is trained."""
    other = [ForwardOf("numbers", feed_forward(12, 32, 1))]
    return replace(mlp(seed), build_optimizers=lambda model: [torch.optim.AdamW(other[0].parameters(), 5e-3)])


def all_but_one_block(seed: int) -> Setup:
    """A list of parameters was written by hand, and a block was forgotten."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        chosen = [parameter for name, parameter in model.named_parameters() if not name.startswith("blocks.1")]
        return [torch.optim.AdamW(chosen, 1e-2)]

    return replace(gpt(seed), build_optimizers=optimizers)


class Keeps(torch.optim.SGD):
    """Gradients are never set to zero."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        return None


def gradients_pile_up(seed: int) -> Setup:
    return replace(
        mlp(seed), build_optimizers=lambda model: [Keeps(model.parameters(), 5e-3, momentum=0.9)], clip_norm=1e9
    )


def clipped_to_nothing(seed: int) -> Setup:
    return replace(mlp(seed), optimizer="sgd", learning_rate=0.05, clip_norm=1e-6)


def hundredfold_rate_of_descent(seed: int) -> Setup:
    """SGD with the rate of another batch size, and no clipping."""
    return replace(unet(seed), optimizer="sgd", learning_rate=30.0, clip_norm=1e9)


def weight_decay_of_everything(seed: int) -> Setup:
    """A weight decay that shrinks all weights faster than they learn."""
    return replace(cnn(seed), weight_decay=60.0)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def inf_in_validation(seed: int) -> Setup:
    """The logarithm of a zero, in rows of validation alone."""
    base = mlp(seed)
    numbers = base.held_out.inputs["numbers"].clone()
    numbers[::20, 5] = -float("inf")
    return replace(base, held_out=replace(base.held_out, inputs={"numbers": numbers}))


def columns_in_another_order(seed: int) -> Setup:
    """Validation has columns of other scales in other places."""
    scale = torch.tensor([1.0, 3.0, 0.3, 1, 2, 0.5, 1, 4, 0.2, 1, 1, 2])
    base = with_inputs(mlp(seed), lambda found: {"numbers": found["numbers"] * scale + scale})
    held_out = base.held_out.inputs["numbers"].roll(1, 1)
    return replace(base, held_out=replace(base.held_out, inputs={"numbers": held_out}))


def another_vocabulary(seed: int) -> Setup:
    """Validation was encoded by a vocabulary of its own."""
    base = gpt(seed)
    codes = torch.randperm(CHARACTERS, generator=drawn(3))
    part = base.held_out
    return replace(
        base, held_out=replace(part, inputs={"tokens": codes[part.inputs["tokens"]]}, targets=codes[part.targets])
    )


def padded_away(seed: int) -> Setup:
    """Every window holds padding alone."""
    return with_inputs(gpt(seed), lambda found: {"tokens": torch.zeros_like(found["tokens"])})


def nan_targets(seed: int) -> Setup:
    x, score, _ = scores(seed, 1500)
    score[::25] = float("nan")
    return replace(
        mlp(seed), loss_fn=lambda outputs, targets: (outputs - targets).square(), predict=None,
        **split(({"numbers": x}, score)),
    )  # fmt: skip


def percentages_for_answers(seed: int) -> Setup:
    """Labels of 0 and 100 for a loss that takes 0 and 1."""
    return with_targets(mlp(seed), lambda targets: targets * 100)


def masks_moved_alone(seed: int) -> Setup:
    """The augmentation moves the masks by another draw than the images."""

    def move(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        by = torch.randint(-6, 7, (4,), generator=generator).tolist()
        return {"image": inputs["image"].roll(by[:2], (2, 3))}, targets.roll(by[2:], (1, 2))

    return replace(unet(seed), augment=move)


def one_image_for_all(seed: int) -> Setup:
    """The augmentation gives each row the batch's first image."""
    return replace(
        cnn(seed),
        augment=lambda inputs, targets, generator: ({"image": inputs["image"][:1].expand_as(inputs["image"])}, targets),
    )


# ---- start, determinism, overfit -------------------------------------------------------------------------------------


def equal_weights(seed: int) -> Setup:
    """All weights start at one value, so that all units learn the same."""

    def network() -> nn.Module:
        model = ForwardOf("image", nn.Sequential(nn.Flatten(), feed_forward(64, 32, 10)), squeeze=False)
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.02)
        return model

    return replace(cnn(seed), network=network)


def sure_from_the_start(seed: int) -> Setup:
    """The last bias says one class with certainty."""

    def network() -> nn.Module:
        layers = convolutions()
        with torch.no_grad():
            layers[-1].bias[3] = 25.0
        return ForwardOf("image", layers, squeeze=False)

    return replace(cnn(seed), network=network)


def vanishing(seed: int) -> Setup:
    """Twelve sigmoid layers, one on the other."""

    def network() -> nn.Module:
        between = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
        return ForwardOf("numbers", nn.Sequential(nn.Linear(12, 32), nn.Sigmoid(), *between, nn.Linear(32, 1)))

    return replace(mlp(seed), network=network)


def sum_over_the_batch(seed: int) -> Setup:
    """Each row's loss times the rows of its batch: parts that are accumulated count less than the whole."""
    loss = nn.CrossEntropyLoss(reduction="none")
    return replace(cnn(seed), loss_fn=lambda outputs, targets: loss(outputs, targets) * len(targets), accumulate=4)


def unseeded_augmentation(seed: int) -> Setup:
    """Noise from a generator of its own: a resumed run sees other rows."""
    fresh = torch.Generator()
    fresh.seed()

    def noise(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        image = inputs["image"]
        return {"image": image + 0.3 * torch.randn(image.shape, generator=fresh)}, targets

    return replace(cnn(seed), augment=noise)


class CentredBy(nn.Module):
    """Counts its forward passes in a plain number, and scales by it: it is lost in a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.passes = feed_forward(12, 32, 1), 0

    def forward(self, inputs: Inputs) -> Tensor:
        self.passes += self.training
        return self.layers(inputs["numbers"]).squeeze(-1) * min(1.0, self.passes / 50)


def images_of_other_rows(seed: int) -> Setup:
    """Images were sorted by name, labels by date."""
    images, targets = digits(seed)
    mixed = images["image"][torch.randperm(len(targets), generator=drawn(seed + 11))]
    return replace(cnn(seed), **split(({"image": mixed}, targets)))


def averaged_away(seed: int) -> Setup:
    """A mean over all columns leaves one number of twelve."""

    class Mean(ForwardOf):
        def forward(self, inputs: Inputs) -> Tensor:
            return super().forward({"numbers": inputs["numbers"].mean(1, keepdim=True).expand(-1, 12) * 1e-4})

    return replace(mlp(seed), network=lambda: Mean("numbers", feed_forward(12, 32, 1)))
