"""Small subjects to try the wiring checks on: a table, pictures and sequences, each with a network that is sound."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.checks import CHECKS
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.preflight import PreflightSpec

ROWS, LENGTH, WORDS, CLASSES = 96, 8, 12, 3


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def table() -> TrainData:
    """Four columns in two inputs, and a label of two values."""
    x = torch.randn(ROWS, 4, generator=draws())
    return TrainData({"x": x[:, :3], "z": x[:, 3:]}, (x[:, 0] + x[:, 3] > 0).float())


def pictures() -> TrainData:
    """One channel of 8 × 8, and a class."""
    x = torch.randn(ROWS, 1, 8, 8, generator=draws())
    return TrainData({"image": x}, torch.randint(0, CLASSES, (ROWS,), generator=draws(1)))


def texts(shift: int = 1) -> TrainData:
    """Words, and for each position the word `shift` later."""
    words = torch.randint(0, WORDS, (ROWS, LENGTH + shift), generator=draws())
    return TrainData({"words": words[:, :LENGTH].contiguous()}, words[:, shift:].contiguous())


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def joined(self, inputs):
        return torch.cat([inputs["x"], inputs["z"]], 1)

    def hidden(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))))

    def forward(self, inputs):
        return self.head(self.hidden(self.joined(inputs))).squeeze(1)


class CNN(nn.Module):
    def __init__(self, norm: Callable[..., nn.Module] = nn.BatchNorm2d):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, CLASSES)

    def hidden(self, x):
        return functional.relu(self.second(functional.relu(self.norm(self.first(x))))).mean((2, 3))

    def forward(self, inputs):
        return self.head(self.hidden(inputs["image"]))


class GPT(nn.Module):
    """One block of attention with causal mask; the output layer is tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, 16), nn.Parameter(torch.randn(LENGTH, 16) * 0.02)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.grow, self.shrink = nn.Linear(16, 32), nn.Linear(32, 16)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril().bool())

    def weights(self, scores):
        return scores.masked_fill(~self.mask, -float("inf")).softmax(2)

    def attention(self, x):
        q, k, v = self.qkv(x).chunk(3, 2)
        return self.out(self.dropout(self.weights(q @ k.mT / 4)) @ v)

    def forward(self, inputs):
        x = self.embed(inputs["words"]) + self.place
        x = x + self.attention(self.norms[0](x))
        x = x + self.shrink(functional.gelu(self.grow(self.norms[1](x))))
        return self.norms[2](x) @ self.embed.weight.T


def bce(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def word_loss(outputs, targets):
    return functional.cross_entropy(outputs.movedim(2, 1), targets, reduction="none").mean(1)


def adam(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    return (torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3),)


def subject(
    network: Callable[[], nn.Module],
    data: TrainData,
    loss_fn: Callable[..., Any],
    *,
    batch: int = 32,
    optimizers: Callable[..., Any] = adam,
    predict: Callable[..., Any] | None = None,
    recipe: dict[str, Any] | None = None,
    **claims: Any,
) -> Subject:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return network()

    rows = len(data.targets)
    plan = Plan(
        rows=rows, batch_size=batch, steps_per_epoch=rows // batch, horizon_steps=20, first_step=0, last_step=20, seed=0
    )
    made = replace(Recipe(loss_fn=loss_fn, learning_rate=lambda step: 1e-3, clip_norm=1.0), **(recipe or {}))
    return Subject(build, optimizers, made, data, data, plan, predict, claims=PreflightSpec(**claims))


def mlp(network: Callable[[], nn.Module] = MLP, **changes: Any) -> Subject:
    return subject(network, **{"data": table(), "loss_fn": bce, "predict": torch.sigmoid, **changes})


def cnn(network: Callable[[], nn.Module] = CNN, **changes: Any) -> Subject:
    return subject(network, **{"data": pictures(), "loss_fn": cross_entropy, **changes})


def gpt(network: Callable[[], nn.Module] = GPT, **changes: Any) -> Subject:
    return subject(network, **{"data": texts(), "loss_fn": word_loss, "causal": ("words",), **changes})


def trials(one: Subject, *names: str) -> dict[str, Trial]:
    """What the named checks find, or all, by name without the family."""
    chosen = [check for check in CHECKS if not names or check.id.removeprefix("wiring.") in names]
    found = run_checks(chosen, one, device="cpu", not_applicable=one.claims.not_applicable)
    return {trial.check.removeprefix("wiring."): trial for trial in found}


def trial(one: Subject, name: str) -> Trial:
    return trials(one, name)[name]


def alarms(one: Subject) -> dict[str, str]:
    """The checks that raise a word, with their evidence."""
    return {
        name: f"{found.status}: {found.evidence}"
        for name, found in trials(one).items() if found.status not in ("pass", "not_applicable")
    }  # fmt: skip
