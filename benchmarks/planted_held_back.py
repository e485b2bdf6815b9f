"""Planted faults that nobody looked at while the checks' thresholds were written. Keep it so: mend a check by its
mechanism, and then plant others here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.healthy_trained import LowRank
from benchmarks.networks import (
    CHARACTERS,
    GPT,
    Block,
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
from benchmarks.planted import Fault, Inputs, Planted, planted
from benchmarks.setup import ForwardOf, Setup, with_inputs, with_targets
from lifecycle.preflight.claims import PreflightSpec

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


def integer_division(seed: int) -> Setup:
    """Pixels of 0 to 16 divided by 16 as whole numbers: nearly all are zero."""
    return with_inputs(cnn(seed), lambda found: {"image": (found["image"] > 1.885).float() * 0})


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


def on(base: Callable[[int], Setup], network: Callable[[], nn.Module]) -> Callable[[int], Setup]:
    return lambda seed: replace(base(seed), network=network)


FAULTS: dict[str, Fault] = {
    "decay_per_update": (decay_per_update, ("configuration.*", "learning_rate.*")),
    "cosine_in_degrees": (cosine_in_degrees, ("configuration.*", "learning_rate.*")),
    "other_models_optimizer": (other_models_optimizer, ("configuration.*", "wiring.*")),
    "all_but_one_block": (all_but_one_block, ("configuration.*", "wiring.*")),
    "gradients_pile_up": (gradients_pile_up, ("wiring.*", "start.*", "determinism.*", "learning_rate.*", "overfit.*")),
    "clipped_to_nothing": (clipped_to_nothing, ("configuration.*", "learning_rate.*", "overfit.*")),
    "hundredfold_rate_of_descent": (hundredfold_rate_of_descent, ("learning_rate.*", "overfit.*")),
    "weight_decay_of_everything": (weight_decay_of_everything, ("configuration.*", "learning_rate.*", "overfit.*")),
    "inf_in_validation": (inf_in_validation, ("inputs.*",)),
    "columns_in_another_order": (columns_in_another_order, ("inputs.*",)),
    "another_vocabulary": (another_vocabulary, ("inputs.*", "overfit.held_out")),
    "integer_division": (integer_division, ("inputs.*",)),
    "padded_away": (padded_away, ("inputs.*",)),
    "nan_targets": (nan_targets, ("inputs.*",)),
    "percentages_for_answers": (percentages_for_answers, ("inputs.*",)),
    "masks_moved_alone": (masks_moved_alone, ("inputs.*",)),
    "one_image_for_all": (one_image_for_all, ("inputs.*", "wiring.*")),
    "sigmoid_twice": (sigmoid_twice, ("wiring.*",)),
    "cut_off_answers": (cut_off_answers, ("wiring.*",)),
    "rows_as_times": (on(cnn, WrongWay), ("wiring.*", "start.reduction")),
    "standardised_by_batch": (on(mlp, OwnNorm), ("wiring.*", "start.reduction")),
    "code_of_place_in_batch": (on(mlp, ByPlace), ("wiring.*", "start.reduction")),
    "mask_off_by_one": (mask_off_by_one, ("wiring.causal",)),
    "mean_of_sequence": (on(gpt, MeanOfSequence), ("wiring.causal",)),
    "asks_for_what_it_sees": (asks_for_what_it_sees, ("inputs.*", "wiring.causal", "overfit.*")),
    "rounded_in_the_middle": (on(mlp, Gated), ("wiring.*",)),
    "no_grad_in_forward": (on(cnn, NoGrad), ("wiring.*",)),
    "input_forgotten": (input_forgotten, ("wiring.*",)),
    "evaluation_as_training": (evaluation_as_training, ("wiring.*",)),
    "counts_in_evaluation": (on(mlp, Counting), ("wiring.*",)),
    "thawed_backbone": (thawed_backbone, ("wiring.*", "configuration.*")),
    "both_thin_matrices_zero": (both_thin_matrices_zero, ("wiring.*", "start.*", "configuration.*")),
    "masks_broadcast": (masks_broadcast, ("wiring.*", "start.reduction")),
    "equal_weights": (equal_weights, ("start.*", "wiring.*")),
    "sure_from_the_start": (sure_from_the_start, ("start.*",)),
    "vanishing": (vanishing, ("start.*", "wiring.*")),
    "sum_over_the_batch": (sum_over_the_batch, ("start.*",)),
    "unseeded_augmentation": (unseeded_augmentation, ("determinism.*", "inputs.*")),
    "counts_its_passes": (on(mlp, CentredBy), ("determinism.*", "wiring.*")),
    "images_of_other_rows": (images_of_other_rows, ("overfit.*",)),
    "averaged_away": (averaged_away, ("start.*", "wiring.*", "overfit.*")),
}
HELD_BACK: dict[str, Planted] = planted(FAULTS)
