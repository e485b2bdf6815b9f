"""Trainings that no rule here was made for: rare positives, heavy tails, one row, cycles, returns, text.

ALIKE and NOT_ALIKE are healthy runs by name, by whether the losses of neighbouring updates are drawn alike. They are
plain torch, without the loop of this project: a monitor is shown signals and nothing else. benchmarks/monitors_rates.py
asks how often a healthy one is told as a spike or a rise; unprepared_damage.py is what is done to some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch import Tensor, nn
from torch.nn import functional

from trainworthy.lifecycle.protocol.signals import Signals

Rate = Callable[[int, int], float]
Draw = Callable[["Rows", int, int, np.random.Generator], np.ndarray]


class Rows(NamedTuple):
    """Inputs and targets."""

    inputs: Tensor
    targets: Tensor


class Batch(NamedTuple):
    """What an update is made from: the mean to descend, and each row's own unweighted loss."""

    descended: Tensor
    losses: Tensor


@dataclass(frozen=True)
class Training:
    """`rows` and `network` are made from a seed, `loss` gives each row's loss, `weight` what it counts in an update.

    `rate` is multiplied by `schedule`; `draw` gives the numbers of an update's rows.
    """

    rows: Callable[[int], Rows]
    network: Callable[[Rows], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    draw: Draw
    batch: int = 32
    steps: int = 2000
    rate: float = 3e-3
    schedule: Rate = lambda step, steps: 1.0
    weight: Callable[[Tensor], Tensor] | None = None
    optimizer: str = "adam"
    clip: float | None = None


# ---- rows ------------------------------------------------------------------------------------------------------------


def rare(seed: int, share: float = 0.006, count: int = 20_000) -> Rows:
    """Rows of which so many are positive, told by the inputs in part."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 12, generator=random)
    score = inputs[:, 0] + inputs[:, 1] * inputs[:, 2] + torch.randn(count, generator=random)
    return Rows(inputs, (score > score.quantile(1 - share)).float())


def regression(noise: Callable[[np.random.Generator, int], np.ndarray]) -> Callable[[int], Rows]:
    """Targets with that noise, or that grow with it, divided by their interquartile range."""

    def made(seed: int) -> Rows:
        random = np.random.default_rng(seed)
        inputs = random.normal(size=(6000, 12))
        targets = noise(random, 6000) + (inputs[:, 0] + np.sin(2 * inputs[:, 1]))
        targets = (targets - np.median(targets)) / (np.quantile(targets, 0.75) - np.quantile(targets, 0.25))
        return Rows(torch.tensor(inputs).float(), torch.tensor(targets).float())

    return made


def lognormal(seed: int) -> Rows:
    """Amounts: the logarithm is normal with a deviation of two."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(6000, 12))
    return Rows(
        torch.tensor(inputs).float(), torch.tensor(np.exp(inputs[:, 0] + 1.7 * random.normal(size=6000))).float()
    )


def table(load: Callable[..., Any], mistaken: float = 0.0) -> Callable[[int], Rows]:
    """A data set that comes with scikit-learn; `mistaken` is the share of labels that are drawn anew."""

    def made(seed: int) -> Rows:
        inputs, targets = load(return_X_y=True)
        spread = inputs.std(0)
        inputs = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1)
        random = np.random.default_rng(seed)
        drawn = random.random(len(targets)) < mistaken
        targets = np.where(drawn, random.permutation(targets), targets)
        if len(np.unique(targets)) > 20:
            targets = (targets - targets.mean()) / targets.std()
        return Rows(torch.tensor(inputs).float(), torch.tensor(targets))

    return made


def text(seed: int, longest: int = 48) -> Rows:
    """Sequences of a Markov chain, of 3 to `longest` tokens, zeros behind their end."""
    random = np.random.default_rng(seed)
    chain = random.dirichlet(np.full(30, 0.1), size=30).cumsum(1)
    lengths = np.clip(np.exp(random.normal(2.5, 0.8, 2000)).astype(int), 3, longest)
    tokens = np.zeros((2000, longest), dtype=int)
    tokens[:, 0] = random.integers(1, 31, 2000)
    for place in range(1, longest):
        steps = (random.random((2000, 1)) > chain[np.maximum(tokens[:, place - 1], 1) - 1]).sum(1)
        tokens[:, place] = np.where(place < lengths, np.minimum(steps, 29) + 1, 0)
    return Rows(torch.tensor(tokens), torch.tensor(tokens))


# ---- networks and losses ---------------------------------------------------------------------------------------------


def mlp(answers: int = 1, width: int = 48) -> Callable[[Rows], nn.Module]:
    def made(rows: Rows) -> nn.Module:
        layers = nn.Sequential(
            nn.Linear(rows.inputs.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, answers),
        )  # fmt: skip
        return layers if answers > 1 else nn.Sequential(layers, nn.Flatten(0))

    return made


class Next(nn.Module):
    """A GRU that tells the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.read, self.tell = nn.Embedding(31, 24), nn.GRU(24, 32, batch_first=True), nn.Linear(32, 31)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tell(self.read(self.tokens(tokens))[0])


def log_loss(answers: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(answers, targets.float(), reduction="none")


def classes(answers: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(answers, targets.long(), reduction="none")


def squares(answers: Tensor, targets: Tensor) -> Tensor:
    return (answers - targets.float()).square()


def next_token(answers: Tensor, tokens: Tensor) -> Tensor:
    """The mean over each row's own tokens."""
    losses = functional.cross_entropy(answers[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    there = (tokens[:, 1:] > 0).float()
    return (losses.view(there.shape) * there).sum(1) / there.sum(1).clamp_min(1)


# ---- schedules and orders --------------------------------------------------------------------------------------------


def warm_up_cosine(step: int, steps: int) -> float:
    return min(1.0, step / (0.1 * steps)) * 0.5 * (1 + math.cos(math.pi * step / steps))


def cycles(step: int, steps: int) -> float:
    """Five triangles between a hundredth and one."""
    return 0.01 + 0.99 * (1 - abs(2 * (5 * step / steps % 1) - 1))


def restarts(step: int, steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * (4 * step / steps % 1))) + 1e-3


def shuffled(rows: Rows, step: int, steps: int, random: np.random.Generator) -> np.ndarray:
    return random.integers(0, len(rows.targets), BATCHES)


# The most rows that a batch has; fewer are taken from the front.
BATCHES = 128


def easy_first(rows: Rows, step: int, steps: int, random: np.random.Generator) -> np.ndarray:
    """Stages: the quarter with the smallest targets, then two of them, three, all."""
    order = rows.targets.float().abs().argsort().numpy()
    return order[random.integers(0, len(order) * (1 + 4 * step // steps) // 4, BATCHES)]


def drifting(rows: Rows, step: int, steps: int, random: np.random.Generator) -> np.ndarray:
    """A window that moves over the rows in the order of an input, as a year's rows do."""
    order = rows.inputs[:, 0].argsort().numpy()
    first = int(0.8 * len(order) * step / steps)
    return order[random.integers(first, first + len(order) // 5, BATCHES)]


def by_class(rows: Rows, step: int, steps: int, random: np.random.Generator) -> np.ndarray:
    """A class after the other, fifty updates of each."""
    of_one = (rows.targets == step // 50 % int(rows.targets.max() + 1)).nonzero().flatten().numpy()
    return of_one[random.integers(0, len(of_one), BATCHES)]


def balanced(targets: Tensor) -> Tensor:
    """Positives of 0.6 % count as much as all others."""
    return torch.where(targets > 0.5, 0.5 / 0.006, 0.5 / 0.994)


RARE = Training(rare, mlp(), log_loss, draw=shuffled)
T2 = Training(regression(lambda r, n: r.standard_t(2, n)), mlp(), squares, draw=shuffled)
T3 = replace(T2, rows=regression(lambda r, n: r.standard_t(3, n)))
AMOUNTS = Training(lognormal, mlp(), squares, draw=shuffled)
DIGITS = Training(table(load_digits), mlp(10), classes, draw=shuffled)
CANCER = Training(table(load_breast_cancer), mlp(), log_loss, draw=shuffled)
TEXT = Training(text, lambda rows: Next(), next_token, draw=shuffled, batch=8, steps=1200)
UNPREPARED: dict[str, Training] = {
    "rare, 32 rows": RARE,
    "rare, 128 rows": replace(RARE, batch=128),
    "rare, one row": replace(RARE, batch=1, steps=4000, rate=1e-3),
    "rare and weighted, 32 rows": replace(RARE, weight=balanced),
    "rare and weighted, one row": replace(RARE, weight=balanced, batch=1, steps=4000, rate=1e-3),
    "t of 2, 32 rows": T2,
    "t of 2, one row": replace(T2, batch=1, steps=4000, rate=3e-4),
    "t of 3, 32 rows": T3,
    "t of 3, one row": replace(T3, batch=1, steps=4000, rate=3e-4),
    "lognormal, 32 rows": AMOUNTS,
    "lognormal, one row": replace(AMOUNTS, batch=1, steps=4000, rate=3e-4, clip=10.0),
    "digits": DIGITS,
    "digits, one row": replace(DIGITS, batch=1, steps=4000, rate=1e-3),
    "digits, a fifth mistaken, one row": replace(DIGITS, rows=table(load_digits, 0.2), batch=1, steps=4000, rate=1e-3),
    "digits, class by class": replace(DIGITS, draw=by_class),
    "digits, steep descent": replace(DIGITS, optimizer="sgd", rate=0.5, batch=128),
    "cancer, one row": replace(CANCER, batch=1, steps=4000, rate=1e-3),
    "cancer, four rows, a tenth mistaken": replace(CANCER, rows=table(load_breast_cancer, 0.1), batch=4),
    "diabetes, four rows": Training(table(load_diabetes), mlp(), squares, draw=shuffled, batch=4),
    "easy rows first": replace(T3, draw=easy_first),
    "easy rows first, one row": replace(T3, draw=easy_first, batch=1, steps=4000, rate=3e-4),
    "rows in the order of a year": replace(T3, draw=drifting),
    "warm-up to a large rate": replace(DIGITS, rate=0.03, schedule=warm_up_cosine),
    "cyclic rate": replace(DIGITS, rate=0.03, schedule=cycles),
    "cyclic rate, descent": replace(DIGITS, optimizer="sgd", rate=0.3, schedule=cycles, batch=16),
    "restarts of the rate": replace(T3, rate=0.02, schedule=restarts),
    "restarts of the rate, rare": replace(RARE, rate=0.02, schedule=restarts),
    "text of mixed lengths": TEXT,
    "text of mixed lengths, one row": replace(TEXT, batch=1, steps=2500),
}


# ---- runs ------------------------------------------------------------------------------------------------------------


@dataclass
class Now:
    """A training in the middle: what damage may change before update `step` is made."""

    step: int
    inputs: Tensor
    targets: Tensor
    others: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rate: float


Damage = Callable[[Now, int, torch.Generator], None]
# Of a damaged training's updates, those before it.
BEFORE = 0.6


def updates(training: Training, seed: int, damage: Damage | None = None) -> Iterator[Signals]:
    """Train, and give each update's signals; ends where loss or gradient is not finite, which other monitors tell."""
    torch.manual_seed(seed)
    random, numbers = torch.Generator().manual_seed(seed + 1), np.random.default_rng(seed)
    rows = training.rows(seed)
    model = training.network(rows)
    made = torch.optim.SGD if training.optimizer == "sgd" else torch.optim.Adam
    optimizer = made(model.parameters(), lr=training.rate)
    since = int(BEFORE * training.steps)
    for step in range(training.steps):
        at = torch.from_numpy(training.draw(rows, step, training.steps, numbers)[: training.batch])
        rate = training.rate * training.schedule(step, training.steps)
        others = rows.targets[torch.randint(len(rows.targets), (len(at),), generator=random)]
        now = Now(step, rows.inputs[at], rows.targets[at], others, model, optimizer, rate)
        if damage is not None and step >= since:
            damage(now, since, random)
        optimizer.param_groups[0]["lr"] = now.rate
        losses = training.loss(model(now.inputs), now.targets)
        descended = losses if training.weight is None else losses * training.weight(now.targets)
        optimizer.zero_grad()
        descended.mean().backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), training.clip or math.inf))
        values = losses.detach().double()
        loss, squared = float(values.mean()), float(values.square().mean())
        if not (math.isfinite(loss) and math.isfinite(norm) and math.isfinite(squared)):
            return
        yield Signals(step, loss, squared, len(values), now.rate, norm, [norm], 0.0, 0.0)
        optimizer.step()


# ---- returns ---------------------------------------------------------------------------------------------------------

PLACES, LONG = 12, 30


def corridor(seed: int, steps: int = 1500) -> Iterator[Signals]:
    """A policy that learns to walk to a corridor's end by its returns (REINFORCE), eight walks an update."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(PLACES, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        place, losses, alive = torch.zeros(8, dtype=torch.long), torch.zeros(8), torch.ones(8)
        reward = torch.zeros(8)
        for _ in range(LONG):
            chosen = torch.distributions.Categorical(logits=model(functional.one_hot(place, PLACES).float()))
            action = chosen.sample()
            losses = losses - alive * chosen.log_prob(action)
            reward = reward + alive * torch.where(place + 2 * action - 1 >= PLACES - 1, 10.0, -0.1)
            alive = alive * (place + 2 * action - 1 < PLACES - 1)
            place = (place + 2 * action - 1).clamp(0, PLACES - 1)
        yield _made(step, losses * reward, model, optimizer, 3e-3)


def values_by_a_copy(seed: int, steps: int = 2500) -> Iterator[Signals]:
    """Values of states, held against those of a copy that follows every hundred updates."""
    torch.manual_seed(seed)
    model, copy = (nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)) for _ in range(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    turn = torch.linalg.qr(torch.randn(4, 4))[0]
    for step in range(steps):
        if step % 100 == 0:
            copy.load_state_dict(model.state_dict())
        state = torch.randn(32, 4)
        after = state @ turn + 0.3 * torch.randn(32, 4)
        with torch.no_grad():
            target = (after[:, 0] > 0).float() + 0.97 * copy(after)
        yield _made(step, (model(state) - target).square(), model, optimizer, 1e-3)


def _made(step: int, losses: Tensor, model: nn.Module, optimizer: torch.optim.Optimizer, rate: float) -> Signals:
    """Descend the mean of these losses once."""
    optimizer.zero_grad()
    losses.mean().backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), math.inf))
    optimizer.step()
    values = losses.detach().double()
    return Signals(step, float(values.mean()), float(values.square().mean()), len(values), rate, norm, [norm], 0.0, 0.0)


def _of(name: str) -> Callable[[int], Iterator[Signals]]:
    return lambda seed: updates(UNPREPARED[name], seed)


# Rows that become harder by plan, or come class by class; with them, losses that move with what is learned.
STAGED = ("easy rows first", "easy rows first, one row", "digits, class by class")
ALIKE = {name: _of(name) for name in UNPREPARED if name not in STAGED}
NOT_ALIKE = {name: _of(name) for name in STAGED} | {"walks by returns": corridor, "values by a copy": values_by_a_copy}
