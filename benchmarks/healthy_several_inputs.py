"""Healthy trainings on pairs, codes and lists of codes; part of HEALTHY in healthy.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from benchmarks.networks import cnn, drawn, feed_forward, mlp, scores, split
from benchmarks.setup import Setup
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


class Several(nn.Module):
    """Numbers and two columns of codes, of which one is padded with 0."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.tags = nn.Embedding(20, 4), nn.Embedding(500, 4, padding_idx=0)
        self.layers = feed_forward(20, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        tags = self.tags(inputs["tags"]).mean(1)
        return self.layers(torch.cat([inputs["numbers"], self.shop(inputs["shop"]), tags], 1)).squeeze(-1)


def several_inputs(seed: int) -> Setup:
    """Numbers, a code, and a padded list of codes, most of which a batch does not meet."""
    x, score, noise = scores(seed, 1500)
    generator = drawn(seed + 4)
    shop = torch.randint(0, 20, (len(x),), generator=generator)
    tags = torch.randint(1, 500, (len(x), 6), generator=generator)
    tags = tags.masked_fill(torch.arange(6) >= torch.randint(1, 7, (len(x), 1), generator=generator), 0)
    targets = (score + 0.1 * (shop - 10) + 0.25 * torch.logit(noise, eps=1e-4) > 0).float()
    return replace(mlp(seed), network=Several, **split(({"numbers": x, "shop": shop, "tags": tags}, targets)))


class Siamese(nn.Module):
    """Are two images of the same digit? One network reads both; the second side's gradient is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = feed_forward(64, 48, 16), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        first, second = self.read(inputs["first"].flatten(1)), self.read(inputs["second"].flatten(1)).detach()
        return self.head(torch.cat([(first - second).abs(), first * second], 1)).squeeze(-1)


def siamese(seed: int) -> Setup:
    base = cnn(seed)
    parts = {}
    for name in ("training", "held_out"):
        rows = getattr(base, name)
        generator = drawn(seed + 6)
        first = torch.randint(0, len(rows.targets), (1500 if name == "training" else 300,), generator=generator)
        second = torch.randint(0, len(rows.targets), first.shape, generator=generator)
        same = torch.rand(first.shape, generator=generator) < 0.5
        equal = rows.targets.argsort(stable=True)
        place = equal.argsort()
        second = torch.where(same, equal[(place[first] + 3) % len(equal)], second)
        image = rows.inputs["image"]
        targets = (rows.targets[first] == rows.targets[second]).float()
        parts[name] = type(rows)({"first": image[first], "second": image[second]}, targets)
    return replace(
        base, network=Siamese, loss_fn=nn.BCEWithLogitsLoss(reduction="none"), predict=torch.sigmoid, groups=None,
        claims=PreflightSpec(not_applicable={"wiring.gradient_is_slope": "one of the two is held"}),
        learning_rate=3e-3, epochs=8, **parts,
    )  # fmt: skip


class Factors(nn.Module):
    """A user's and an item's factors: only those that a batch meets have a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(200, 8), nn.Embedding(100, 8)
        nn.init.normal_(self.users.weight, std=0.3)
        nn.init.normal_(self.items.weight, std=0.3)

    def forward(self, inputs: Inputs) -> Tensor:
        return (self.users(inputs["user"]) * self.items(inputs["item"])).sum(1)


def factorisation(seed: int) -> Setup:
    generator = drawn(seed + 7)
    user, item = (torch.randint(0, count, (3000,), generator=generator) for count in (200, 100))
    users, items = torch.randn(200, 2, generator=generator), torch.randn(100, 2, generator=generator)
    targets = (users[user] * items[item]).sum(1) + 0.1 * torch.randn(3000, generator=generator)
    return replace(
        mlp(seed), network=Factors, loss_fn=nn.MSELoss(reduction="none"), predict=None, learning_rate=3e-2, epochs=10,
        **split(({"user": user, "item": item}, targets)),
    )  # fmt: skip


SEVERAL: dict[str, Callable[[int], Setup]] = {
    "several_inputs": several_inputs, "siamese": siamese, "factorisation": factorisation,
}  # fmt: skip
