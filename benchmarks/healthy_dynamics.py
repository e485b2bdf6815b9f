"""Healthy trainings whose losses do odd things over the run: DYNAMIC, from a name to a function of a seed.

None may raise a critical alarm. They are measured with those of healthy.py by benchmarks/monitors.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.healthy_odd import numbers as with_numbers
from benchmarks.networks import cnn, drawn, feed_forward, gpt, mlp, scores, split, unet
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.plan import Plan

Inputs = dict[str, Tensor]
Make = Callable[[int], Subject]


class Curriculum(Plan):
    """Draws from the first rows, and from ever more of them; rows lie from easy to hard."""

    def batch(self, step: int) -> Tensor:
        among = max(4 * self.batch_size, int(self.rows * min(1.0, 0.15 + 1.3 * step / self.horizon_steps)))
        return torch.randperm(among, generator=drawn(self.seed * 10_000 + step))[: self.batch_size]


class Unshuffled(Plan):
    """Each pass in the order in which the rows lie."""

    def batch(self, step: int) -> Tensor:
        first = step % self.steps_per_epoch * self.batch_size
        return torch.arange(first, first + self.batch_size)


def planned(make: Callable[[int], Setup], plan: type[Plan]) -> Make:
    def subject(seed: int) -> Subject:
        found = make(seed).subject()
        return replace(found, plan=plan(**found.plan.model_dump()))

    return subject


def easy_first(seed: int) -> Setup:
    """The MLP's rows, those far from the boundary first."""
    base = mlp(seed)
    _, score, _ = scores(seed, 1500)
    order = score[: len(base.training.targets)].abs().argsort(descending=True, stable=True)
    return replace(base, training=base.training.take(order), learning_rate=3e-3)


def short_windows_first(seed: int) -> Setup:
    """Text in the order of how rare its characters are."""
    base = gpt(seed)
    order = base.training.inputs["tokens"].float().mean(1).argsort(stable=True)
    return replace(base, training=base.training.take(order))


def plateau_then_drop(seed: int) -> Setup:
    """The sign of a product of three by plain descent from small weights: nothing for long, then all at once."""
    signs = torch.randn(1500, 12, generator=drawn(seed)).sign()
    targets = (signs[:, 0] * signs[:, 1] * signs[:, 2] > 0).float()

    def network() -> nn.Module:
        layers = feed_forward(12, 64, 1)
        for one in layers:
            if isinstance(one, nn.Linear):
                nn.init.normal_(one.weight, std=0.5 / math.sqrt(one.in_features))
        return ForwardOf("numbers", layers)

    return replace(
        mlp(seed), network=network, optimizer="sgd", learning_rate=0.02, warmup=0.0, decay="constant", epochs=30,
        clip_norm=1e9, **split(({"numbers": signs}, targets)),
    )  # fmt: skip


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class Adversaries(nn.Module):
    """Tells rows from made ones; what makes them gets its gradient turned round."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.tell = feed_forward(4, 32, 12), feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        made = self.make(inputs["noise"])
        return torch.cat([self.tell(inputs["numbers"]), self.tell(_Turned.apply(made))], 1)


def adversarial(seed: int) -> Setup:
    """Two networks that work against each other: their common loss falls, and rises again."""
    x, _, _ = scores(seed, 1500)
    noise = torch.randn(1500, 4, generator=drawn(seed + 8))
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(
        mlp(seed), network=Adversaries, predict=None,
        loss_fn=lambda o, t: loss(o, o.new_tensor([1.0, 0.0]).expand(len(o), 2)).sum(1),
        learning_rate=3e-3, epochs=20, decay="constant",
        **split(({"numbers": x + 2, "noise": noise}, torch.zeros(1500))),
    )  # fmt: skip


def attacked(seed: int) -> Setup:
    """Each batch is moved by random signs that grow over the run, as an attack that is turned up."""
    drawn_so_far = [0]

    def attack(inputs: Inputs, targets: Tensor, generator: torch.Generator) -> tuple[Inputs, Tensor]:
        drawn_so_far[0] += 1
        size = min(1.0, drawn_so_far[0] / 300)
        noise = torch.randn(inputs["image"].shape, generator=generator).sign()
        return {"image": inputs["image"] + size * noise.to(inputs["image"].device)}, targets

    return replace(cnn(seed), augment=attack)


def noisy_batch_of_one(seed: int) -> Setup:
    """One row an update, of which the inputs explain a sixth."""
    x, score, _ = scores(seed, 1500)
    targets = score + 2.2 * torch.randn(len(score), generator=drawn(seed + 1))
    return replace(
        mlp(seed), loss_fn=lambda o, t: (o - t).square(), predict=None, batch_size=1, epochs=1, learning_rate=3e-4,
        **split(({"numbers": x}, (targets - targets.mean()) / targets.std())),
    )  # fmt: skip


def _cycle(low: float, high: float, cycles: int) -> Callable[[int, int], float]:
    """A triangle from low to high and back, `cycles` times a run."""
    return lambda step, steps: low + (high - low) * (1 - abs(2 * (cycles * step / steps % 1) - 1))


def cyclic_rate(seed: int) -> Setup:
    return replace(cnn(seed), schedule=_cycle(3e-4, 1.5e-2, 4))


def cyclic_rate_of_text(seed: int) -> Setup:
    return replace(gpt(seed), schedule=_cycle(2e-4, 1.2e-2, 3))


def cyclic_rate_of_masks(seed: int) -> Setup:
    return replace(unet(seed), schedule=_cycle(3e-4, 1.2e-2, 3))


def rate_from_zero(seed: int) -> Setup:
    """The first update is made at a rate of zero, and so is the last."""
    return replace(
        mlp(seed), schedule=lambda step, steps: 5e-3 * min(step / 25, max(0.0, (steps - 1 - step) / (steps - 26)))
    )


def far_from_zero(seed: int) -> Setup:
    """Temperatures in kelvin: the outputs' spread becomes small beside their size."""
    _, score, _ = scores(seed, 1500)
    return replace(
        with_numbers(seed, 1, 290 + 8 * score, lambda o, t: (o - t).abs()), learning_rate=3e-2, epochs=20,
        network=lambda: ForwardOf("numbers", nn.Sequential(feed_forward(12, 32, 1), Shift(280.0))),
    )  # fmt: skip


class Shift(nn.Module):
    """Adds about what the targets' mean is."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


class Chosen(nn.Module):
    """Each row is answered by one of six experts; one that no row of the batch chose is not called at all."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.gate = nn.ModuleList(feed_forward(12, 16, 1) for _ in range(6)), nn.Linear(12, 6)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        shares = self.gate(x).softmax(1)
        chosen, answers = shares.argmax(1), x.new_zeros(len(x))
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            if len(rows):
                answers = answers.index_add(0, rows, expert(x[rows]).squeeze(1) * shares[rows, number])
        return answers


def chosen_experts(seed: int) -> Setup:
    return replace(mlp(seed), network=Chosen)


class WithAuxiliary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.main, self.beside = feed_forward(12, 32, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        features = self.body(inputs["numbers"]).relu()
        return torch.cat([self.main(features), self.beside(features)], 1)


def absolute_error(seed: int) -> Setup:
    """Absolute errors of targets that all lie above the first answers: the last bias has one gradient for long."""
    _, score, _ = scores(seed, 1500)
    return with_numbers(seed, 1, score + 4, lambda o, t: (o - t).abs())


def large_batches(seed: int) -> Setup:
    """Six updates a pass: gradients of neighbouring updates are much alike."""
    return replace(mlp(seed), batch_size=200, epochs=30, optimizer="sgd", learning_rate=0.3, warmup=0.3)


def masked_auxiliary(seed: int) -> Setup:
    """A second loss whose targets are there for one row of ten."""
    x, score, noise = scores(seed, 1500)
    beside = torch.where(noise < 0.1, x[:, 0], torch.full_like(noise, math.nan))
    targets = torch.stack([(score > 0).float(), beside], 1)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        there = ~targets[:, 1].isnan()
        error = torch.where(there, outputs[:, 1] - targets[:, 1].nan_to_num(), torch.zeros_like(outputs[:, 1]))
        return (
            functional.binary_cross_entropy_with_logits(outputs[:, 0], targets[:, 0], reduction="none") + error.square()
        )

    return replace(mlp(seed), network=WithAuxiliary, loss_fn=loss_fn, predict=None, **split(({"numbers": x}, targets)))


def _subject(make: Callable[[int], Setup]) -> Make:
    return lambda seed: make(seed).subject()


MADE = (
    plateau_then_drop, adversarial, attacked, noisy_batch_of_one, cyclic_rate, cyclic_rate_of_text,
    cyclic_rate_of_masks, rate_from_zero, far_from_zero, chosen_experts, absolute_error, large_batches,
    masked_auxiliary,
)  # fmt: skip
DYNAMIC: dict[str, Make] = {
    "curriculum": planned(easy_first, Curriculum),
    "curriculum_of_text": planned(short_windows_first, Curriculum),
    "unshuffled": planned(mlp, Unshuffled),
    **{make.__name__: _subject(make) for make in MADE},
}
