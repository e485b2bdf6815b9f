"""Planted faults over five hosts that no check was fixed after: FRESH, as in planted_held_back.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from benchmarks.healthy_networks import Recurrent, lstm
from benchmarks.healthy_odd import padded_sequences
from benchmarks.networks import CHARACTERS, GPT, Block, UNet, cnn, convolutions, feed_forward, gpt, mlp, unet
from benchmarks.planted import Fault, Planted, planted
from benchmarks.setup import ForwardOf, Setup, with_targets

Inputs = dict[str, Tensor]


# ---- rows and augmentation -------------------------------------------------------------------------------------------


def reversed_in_training(seed: int) -> Setup:
    """Training sequences are read backwards, those of validation forwards."""
    base = lstm(seed)
    image = base.training.inputs["image"].flip(2)
    return replace(base, training=replace(base.training, inputs={"image": image}))


def labels_of_the_next_row(seed: int) -> Setup:
    """A join that is off by one."""
    return with_targets(mlp(seed), lambda targets: targets.roll(-1))


def erased(seed: int) -> Setup:
    """Random erasing whose box is always the whole image."""

    def erase(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        return {"image": torch.zeros_like(inputs["image"])}, targets

    return replace(cnn(seed), augment=erase)


def other_axis(seed: int) -> Setup:
    """Images are flipped upside down, their masks left to right."""

    def flip(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        chosen = torch.rand(len(targets), generator=generator) < 0.5
        image = torch.where(chosen[:, None, None, None], inputs["image"].flip(2), inputs["image"])
        return {"image": image}, torch.where(chosen[:, None, None], targets.flip(2), targets)

    return replace(unet(seed), augment=flip)


def mixed_inputs_alone(seed: int) -> Setup:
    """Mixup that forgets the labels."""

    def mix(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        order = torch.randperm(len(targets), generator=generator)
        return {"image": 0.5 * inputs["image"] + 0.5 * inputs["image"][order]}, targets

    return replace(cnn(seed), augment=mix)


def tokens_blotted(seed: int) -> Setup:
    """Word dropout whose share is that of what is kept: all but one of ten tokens become one character."""

    def blot(inputs: Inputs, targets: Tensor, generator: Generator) -> tuple[Inputs, Tensor]:
        gone = torch.rand(inputs["tokens"].shape, generator=generator) < 0.98
        return {"tokens": inputs["tokens"].masked_fill(gone, CHARACTERS - 1)}, targets

    return replace(gpt(seed), augment=blot)


# ---- loss ------------------------------------------------------------------------------------------------------------


def dice_of_logits(seed: int) -> Setup:
    """The overlap is taken of logits, without a sigmoid."""

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        both, each = (outputs * targets).flatten(1).sum(1), (outputs + targets).flatten(1).sum(1)
        return 1 - 2 * both / (each + 1)

    return replace(unet(seed), loss_fn=loss_fn)


def ignores_a_class(seed: int) -> Setup:
    """Class 0 is taken for padding."""
    return replace(cnn(seed), loss_fn=nn.CrossEntropyLoss(reduction="none", ignore_index=0))


def loss_of_the_first_position(seed: int) -> Setup:
    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs[:, 0], targets[:, 0], reduction="none")

    return replace(gpt(seed), loss_fn=loss_fn)


def divided_by_positives(seed: int) -> Setup:
    """Each row's loss is divided by the batch's positives."""
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(mlp(seed), loss_fn=lambda o, t: loss(o, t) / t.sum().clamp(min=1) * 16)


# ---- schedule and optimizer ------------------------------------------------------------------------------------------


def decay_that_grows(seed: int) -> Setup:
    """A factor of 1.03 an update where 0.97 was meant."""
    return replace(lstm(seed), schedule=lambda step, steps: 3e-3 * 1.03**step)


def warmup_anew_each_pass(seed: int) -> Setup:
    """The warm-up counts the updates of the pass: the rate never comes above a thirtieth of what is declared."""
    return replace(mlp(seed), schedule=lambda step, steps: 5e-3 * min(1.0, (step % 37) / 1000))


def maximised(seed: int) -> Setup:
    """The head's group climbs."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        assert isinstance(model, UNet)
        head = list(model.head.parameters())
        body = [one for name, one in model.named_parameters() if not name.startswith("head")]
        return [torch.optim.AdamW(body, lr=1e-2), torch.optim.AdamW(head, lr=1e-2, maximize=True)]

    return replace(unet(seed), build_optimizers=optimizers)


# ---- mask, head, state -----------------------------------------------------------------------------------------------


class SeesPadding(Block):
    """Its mask lets each position see padding, and nothing else but itself."""

    padding: Tensor

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.attend(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        allowed = (self.padding[:, None, :] | torch.eye(length, dtype=torch.bool))[:, None]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.norm2(x))


class MaskInverted(GPT):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SeesPadding(32, 4) for _ in range(2))

    def forward(self, inputs: Inputs) -> Tensor:
        for block in self.blocks:
            block.padding = inputs["tokens"] == CHARACTERS - 1  # pyright: ignore[reportAttributeAccessIssue]
        return super().forward(inputs)


def mask_inverted(seed: int) -> Setup:
    return replace(padded_sequences(seed), network=MaskInverted)


class Backwards(Block):
    """The triangle of its mask is the upper one: a position sees what follows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flip(1)).flip(1)


def mask_transposed(seed: int) -> Setup:
    def network() -> nn.Module:
        model = GPT()
        model.blocks = nn.ModuleList(Backwards(32, 4) for _ in range(2))
        return model

    return replace(gpt(seed), network=network)


def relu_on_logits(seed: int) -> Setup:
    """A rectifier behind the head: no probability below a half."""
    return replace(mlp(seed), network=lambda: ForwardOf("numbers", nn.Sequential(feed_forward(12, 32, 1), nn.ReLU())))


def tanh_on_logits(seed: int) -> Setup:
    return replace(lstm(seed), network=lambda: nn.Sequential(Recurrent(nn.LSTM), nn.Tanh()), learning_rate=3e-3)


class StillNorm(nn.BatchNorm2d):
    """Never in training mode: its statistics stay those of the start."""

    def train(self, mode: bool = True) -> StillNorm:
        return super().train(False)


def norm_that_never_trains(seed: int) -> Setup:
    """Batch norm by the statistics of its start, in training as well."""

    def network() -> nn.Module:
        layers = convolutions()
        layers[1], layers[5] = StillNorm(8), StillNorm(16)
        return ForwardOf("image", layers, squeeze=False)

    return replace(cnn(seed), network=network)


class CarriesOver(Recurrent):
    """Begins each batch with the state at the end of the one before."""

    def __init__(self) -> None:
        super().__init__(nn.LSTM)
        self.state: Any = None

    def forward(self, inputs: Inputs) -> Tensor:
        rows = inputs["image"].squeeze(1)
        before = self.state if self.state is not None and self.state[0].shape[1] == len(rows) else None
        states, after = self.read(rows, before)
        self.state = tuple(one.detach() for one in after)
        return self.head(states[:, -1])


class FirstStep(Recurrent):
    """Answers from the first state, which has seen one line of the image."""

    def forward(self, inputs: Inputs) -> Tensor:
        states, _ = self.read(inputs["image"].squeeze(1))
        return self.head(states[:, 0])


class Drifts(UNet):
    """Its running mean of the image is a parameter that is written in the forward pass, in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.middle: Tensor
        self.register_buffer("middle", torch.zeros(1))

    def forward(self, inputs: Inputs) -> Tensor:
        self.middle = 0.9 * self.middle + 0.1 * inputs["image"].detach().mean()
        return super().forward({"image": inputs["image"] - 3 * self.middle})


FAULTS: dict[str, Fault] = {
    "reversed_in_training": (reversed_in_training, ("inputs.*", "overfit.held_out")),
    "labels_of_the_next_row": (labels_of_the_next_row, ("overfit.*",)),
    "erased": (erased, ("inputs.*", "overfit.*")),
    "other_axis": (other_axis, ("inputs.*",)),
    "mixed_inputs_alone": (mixed_inputs_alone, ("inputs.*",)),
    "tokens_blotted": (tokens_blotted, ("inputs.*", "overfit.*")),
    "dice_of_logits": (dice_of_logits, ("wiring.*", "start.*", "learning_rate.*", "overfit.*")),
    "ignores_a_class": (ignores_a_class, ("inputs.*", "wiring.*")),
    "loss_of_the_first_position": (loss_of_the_first_position, ("wiring.*", "inputs.*")),
    "divided_by_positives": (divided_by_positives, ("start.*", "wiring.*")),
    "decay_that_grows": (decay_that_grows, ("configuration.*", "learning_rate.*")),
    "warmup_anew_each_pass": (warmup_anew_each_pass, ("configuration.*", "learning_rate.*")),
    "maximised": (maximised, ("configuration.*", "learning_rate.*", "wiring.*", "overfit.*")),
    "mask_inverted": (mask_inverted, ("wiring.*", "inputs.*", "overfit.*")),
    "mask_transposed": (mask_transposed, ("wiring.causal",)),
    "relu_on_logits": (relu_on_logits, ("wiring.*", "start.*")),
    "tanh_on_logits": (tanh_on_logits, ("wiring.*",)),
    "norm_that_never_trains": (norm_that_never_trains, ("wiring.*", "start.*")),
    "carries_over": (lambda seed: replace(lstm(seed), network=CarriesOver), ("wiring.*", "determinism.*", "start.*")),
    "first_step": (lambda seed: replace(lstm(seed), network=lambda: FirstStep(nn.LSTM)), ("wiring.*", "overfit.*")),
    "drifts": (lambda seed: replace(unet(seed), network=Drifts), ("wiring.*", "determinism.*")),
}
FRESH: dict[str, Planted] = planted(FAULTS)
