"""Healthy odd trainings that no check was fixed after: FRESH_HEALTHY, as in healthy.py."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.healthy_odd import numbers
from benchmarks.networks import cnn, digits, drawn, feed_forward, gpt, mlp, scores, split
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]
# What a person declares away of a network that holds or turns a gradient on purpose.
SLOPE = "wiring.gradient_is_slope"


class DeepSet(nn.Module):
    """A sum over the set of what each element gives; the elements' order does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.all = feed_forward(3, 32, 32), feed_forward(32, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.all(self.each(inputs["set"]).sum(1)).squeeze(-1)


def deep_sets(seed: int) -> Setup:
    """Is the largest distance from the middle above its median?"""
    points = torch.randn(1500, 8, 3, generator=drawn(seed))
    size = points.norm(dim=2).amax(1)
    return replace(mlp(seed), network=DeepSet, **split(({"set": points}, (size > size.median()).float())))


class Turned(nn.Module):
    """Each kernel in four rotations; the answers are the mean over them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(8, 1, 3, 3) / 3)
        self.second = nn.Parameter(torch.randn(16, 8, 3, 3) / math.sqrt(72))
        self.head = nn.Linear(16 * 4, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        told = []
        for turns in range(4):
            x = functional.conv2d(inputs["image"], self.first.rot90(turns, (2, 3)), padding=1).relu()
            x = functional.max_pool2d(functional.conv2d(x, self.second.rot90(turns, (2, 3)), padding=1).relu(), 4)
            told.append(x.rot90(-turns, (2, 3)).flatten(1))
        return self.head(torch.stack(told).mean(0))


def equivariant(seed: int) -> Setup:
    return replace(cnn(seed), network=Turned)


class Hyper(nn.Module):
    """Four of the numbers write the weights by which the other eight are read."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = feed_forward(4, 32, 8 * 8 + 8)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        written = self.writes(x[:, 8:]) / 3
        held = torch.bmm(x[:, None, :8], written[:, :64].view(-1, 8, 8)).squeeze(1).tanh()
        return (held * written[:, 64:]).sum(1)


def hypernetwork(seed: int) -> Setup:
    return replace(mlp(seed), network=Hyper, epochs=10)


class Spike(torch.autograd.Function):
    """A step forward, a fast sigmoid's slope backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] / (1 + 5 * x.abs()).square()


class Spiking(nn.Module):
    """Leaky neurons that fire and are set back, over eight steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 64), nn.Linear(64, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        current, held, told = self.first(inputs["numbers"]), 0.0, 0.0
        for _ in range(8):
            held = 0.8 * held + current
            spikes = Spike.apply(held - 1)
            held = held - spikes.detach()
            told = told + self.second(spikes) / 8
        assert isinstance(told, Tensor)
        return told.squeeze(-1)


def spiking(seed: int) -> Setup:
    return replace(mlp(seed), network=Spiking, claims=PreflightSpec(not_applicable={SLOPE: "straight through"}))


class Ordered(nn.Module):
    """Quantiles that cannot cross: the first, and positive steps above it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 3)

    def forward(self, inputs: Inputs) -> Tensor:
        found = self.layers(inputs["numbers"])
        return torch.cat([found[:, :1], found[:, :1] + functional.softplus(found[:, 1:]).cumsum(1)], 1)


def ordered_quantiles(seed: int) -> Setup:
    _, score, noise = scores(seed, 1500)
    shares = torch.tensor([0.1, 0.5, 0.9])

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        error = targets[:, None] - outputs
        of = shares.to(outputs.device)
        return torch.maximum(of * error, (of - 1) * error).mean(1)

    return replace(numbers(seed, 3, score + 0.5 * torch.logit(noise, eps=1e-4), loss_fn), network=Ordered)


class Hears(nn.Module):
    """A log probability for each time and sign; the last sign is the blank."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.GRU(6, 32, batch_first=True, bidirectional=True), nn.Linear(64, 6)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.read(inputs["sound"])[0]).log_softmax(-1)


def ctc(seed: int) -> Setup:
    """Three of five signs, each held for some of twelve moments in noise."""
    generator = drawn(seed)
    signs = torch.randint(0, 5, (1200, 3), generator=generator)
    held = torch.randint(2, 5, (1200, 3), generator=generator).cumsum(1)
    at = (torch.arange(12)[None, :, None] >= held[:, None, :2]).sum(2)
    sound = functional.one_hot(signs.gather(1, at), 6).float() + 0.3 * torch.randn(1200, 12, 6, generator=generator)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        rows = len(outputs)
        times, length = torch.full((rows,), 12), torch.full((rows,), 3)
        found = functional.ctc_loss(
            outputs.transpose(0, 1).float(), targets, times, length, blank=5, reduction="none", zero_infinity=True
        )
        return found / 3

    return replace(
        mlp(seed), network=Hears, loss_fn=loss_fn, predict=None, learning_rate=1e-2,
        **split(({"sound": sound - sound.mean()}, signs)),
    )  # fmt: skip


class Points(nn.Module):
    """Scores (N, places) of each place of the input: which one is meant."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.ask = nn.LSTM(2, 32, batch_first=True, bidirectional=True), nn.Linear(64, 32)
        self.tell = nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        states, _ = self.read(inputs["places"])
        return self.tell(torch.tanh(self.ask(states))).squeeze(-1)


def pointer(seed: int) -> Setup:
    """Which of nine places is the furthest out?"""
    places = torch.randn(1500, 9, 2, generator=drawn(seed))
    return replace(
        mlp(seed), network=Points, loss_fn=nn.CrossEntropyLoss(reduction="none"), predict=None, learning_rate=1e-2,
        **split(({"places": places}, places.norm(dim=2).argmax(1))),
    )  # fmt: skip


class Capsules(nn.Module):
    """The length of each class's vector, after three rounds of routing."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(1, 32, 3, stride=2)
        self.votes = nn.Parameter(torch.randn(72, 10, 8, 4) / 4)

    def forward(self, inputs: Inputs) -> Tensor:
        below = squash(self.enter(inputs["image"]).unflatten(1, (8, 4)).permute(0, 1, 3, 4, 2).flatten(1, 3))
        votes = torch.einsum("bnw,navw->bnav", below, self.votes)
        agreed = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            above = squash((agreed.softmax(2).unsqueeze(-1) * votes).sum(1))
            agreed = agreed + (votes * above.unsqueeze(1)).sum(-1)
        return (above.square().sum(-1) + 1e-8).sqrt()


def squash(x: Tensor) -> Tensor:
    size = x.square().sum(-1, keepdim=True)
    return x * (size + 1e-8).sqrt() / (1 + size)


def capsules(seed: int) -> Setup:
    def margin(outputs: Tensor, targets: Tensor) -> Tensor:
        right = functional.one_hot(targets, 10)
        above, below = (0.9 - outputs).clamp(min=0).square(), (outputs - 0.1).clamp(min=0).square()
        return (right * above + 0.5 * (1 - right) * below).sum(1)

    return replace(cnn(seed), network=Capsules, loss_fn=margin)


class Flow(nn.Module):
    """Log densities by four affine couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(feed_forward(6, 32, 12) for _ in range(4))
        for one in self.inner:
            nn.init.zeros_(one[-1].weight)
            nn.init.zeros_(one[-1].bias)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        volume = torch.zeros_like(x[:, 0])
        for inner in self.inner:
            kept, changed = x.chunk(2, 1)
            shift, scale = inner(kept).chunk(2, 1)
            x = torch.cat([changed * scale.tanh().exp() + shift, kept], 1)
            volume = volume + scale.tanh().sum(1)
        return volume - 0.5 * (x.square() + math.log(2 * math.pi)).sum(1)


def _curved(seed: int) -> Tensor:
    x = torch.randn(1500, 12, generator=drawn(seed))
    x[:, 6:] = 0.7 * x[:, :6].square() + 0.3 * x[:, 6:]
    return (x - x.mean(0)) / x.std(0)


def normalising_flow(seed: int) -> Setup:
    x = _curved(seed)
    return replace(
        mlp(seed), network=Flow, loss_fn=lambda o, t: -o, predict=None, claims=PreflightSpec(labels="unused"),
        **split(({"numbers": x}, torch.zeros(len(x)))),
    )  # fmt: skip


class Energy(nn.Module):
    """The energy of each row, and of one that ten steps of Langevin's dynamics made from noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        made = torch.randn_like(x)
        with torch.enable_grad():
            for _ in range(10):
                made = made.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.layers(made).sum(), made)
                made = made - 0.1 * slope + 0.05 * torch.randn_like(made)
        return torch.cat([self.layers(x), self.layers(made.detach())], 1)


def energy(seed: int) -> Setup:
    x = _curved(seed)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0] - outputs[:, 1] + 0.1 * outputs.square().sum(1)

    return replace(
        mlp(seed), network=Energy, loss_fn=loss_fn, predict=None, learning_rate=1e-3,
        claims=PreflightSpec(
            labels="unused", evaluation="stochastic", not_applicable={SLOPE: "its samples are held fixed"}
        ),
        **split(({"numbers": x}, torch.zeros(len(x)))),
    )  # fmt: skip


class Lars(torch.optim.Optimizer):
    """Descent whose rate is scaled, for each tensor, by its norm over its gradient's."""

    def __init__(self, parameters: Any, lr: float, momentum: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for one in (one for one in group["params"] if one.grad is not None):
                size, slope = one.norm(), one.grad.norm()
                trust = torch.where((size > 0) & (slope > 0), size / (slope + 1e-9), torch.ones_like(size))
                held = self.state[one].setdefault("momentum", torch.zeros_like(one))
                held.mul_(group["momentum"]).add_(trust * one.grad)
                one.add_(held, alpha=-group["lr"])


def lars(seed: int) -> Setup:
    return replace(
        cnn(seed), build_optimizers=lambda model: [Lars(model.parameters(), 1e-2)], learning_rate=1e-2, batch_size=64
    )


class Reverses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -0.3 * gradients[0]


class Domains(nn.Module):
    """A class, and the domain by a head whose gradient the body gets turned round."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.tell, self.domain = feed_forward(12, 32, 32), nn.Linear(32, 1), feed_forward(32, 16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        features = self.body(inputs["numbers"]).relu()
        return torch.cat([self.tell(features), self.domain(Reverses.apply(features))], 1)


def domain_adversarial(seed: int) -> Setup:
    """The body shall tell the class, and not from which of two domains a row is."""
    x, score, noise = scores(seed, 1500)
    domain = (torch.rand(1500, generator=drawn(seed + 5)) < 0.5).float()
    x = x.clone()
    x[:, 10] += 1.5 * (2 * domain - 1)
    label = (score + 0.25 * torch.logit(noise, eps=1e-4) > 0).float()
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(
        mlp(seed), network=Domains, loss_fn=lambda o, t: loss(o, t).sum(1),
        predict=lambda outputs: torch.sigmoid(outputs[:, 0]),
        claims=PreflightSpec(not_applicable={SLOPE: "the domain's gradient is turned round"}),
        **split(({"numbers": x}, torch.stack([label, domain], 1))),
    )  # fmt: skip


@dataclass
class Answer:
    logits: Tensor
    features: Tensor


class Answers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = feed_forward(12, 32, 16), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Any:
        features = self.body(inputs["numbers"]).relu()
        return Answer(self.head(features).squeeze(-1), features)


def dataclass_outputs(seed: int) -> Setup:
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(
        mlp(seed), network=Answers, loss_fn=lambda o, t: loss(o.logits, t), predict=lambda o: torch.sigmoid(o.logits)
    )


class Named(OrderedDict):  # pyright: ignore[reportMissingTypeArgument]
    """Like transformers' ModelOutput: a dict whose entries are attributes too."""

    def __init__(self, *args: Any, **entries: Any) -> None:
        super().__init__(*args, **entries)
        vars(self).update(self)


class NamedAnswers(Answers):
    def forward(self, inputs: Inputs) -> Any:
        found = super().forward(inputs)
        return Named(logits=found.logits, hidden_states=found.features)


def model_output(seed: int) -> Setup:
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(
        mlp(seed), network=NamedAnswers, loss_fn=lambda o, t: loss(o.logits, t),
        predict=lambda o: torch.sigmoid(o.logits),
    )  # fmt: skip


class Tempered(nn.Module):
    """Logits over a temperature that is learned slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.temperature = ForwardOf("numbers", feed_forward(12, 32, 1)), nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs: Inputs) -> Tensor:
        return self.layers(inputs) / self.temperature


def slow_temperature(seed: int) -> Setup:
    """A number that is trained at a thousandth of the rate."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        assert isinstance(model, Tempered)
        groups = [{"params": list(model.layers.parameters())}, {"params": [model.temperature], "lr": 5e-6}]
        return [torch.optim.AdamW(groups, lr=5e-3)]

    return replace(mlp(seed), network=Tempered, build_optimizers=optimizers)


class Mixture(nn.Module):
    """Three normal laws: shares, means, logarithms of the spreads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 9)

    def forward(self, inputs: Inputs) -> Tensor:
        shares, means, spreads = self.layers(inputs["numbers"]).chunk(3, 1)
        return torch.cat([shares.log_softmax(1), means + means.new_tensor([-1.0, 0.0, 1.0]), spreads.clamp(-4, 3)], 1)


def mixture_density(seed: int) -> Setup:
    _, score, noise = scores(seed, 1500)
    targets = torch.where(noise < 0.5, score, -score)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        shares, means, spreads = outputs.chunk(3, 1)
        far = (targets[:, None] - means) / spreads.exp()
        return -torch.logsumexp(shares - spreads - 0.5 * far.square() - 0.92, 1)

    return replace(numbers(seed, 9, targets, loss_fn), network=Mixture)


class Ordinal(nn.Module):
    """One score against four rising thresholds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.steps = feed_forward(12, 32, 1), nn.Parameter(torch.tensor([-1.0, 0.0, 0.0, 0.0]))

    def forward(self, inputs: Inputs) -> Tensor:
        bounds = torch.cat([self.steps[:1], self.steps[:1] + functional.softplus(self.steps[1:]).cumsum(0)])
        return self.layers(inputs["numbers"]) - bounds


def ordinal(seed: int) -> Setup:
    _, score, _ = scores(seed, 1500)
    grades = (score[:, None] > torch.tensor([-1.0, -0.3, 0.3, 1.0])).float()
    loss = nn.BCEWithLogitsLoss(reduction="none")
    return replace(numbers(seed, 4, grades, lambda o, t: loss(o, t).mean(1)), network=Ordinal)


class Flows(nn.Module):
    """Runge and Kutta's four steps through a field that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.field, self.head = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 12)), nn.Linear(12, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        for _ in range(4):
            first = self.field(x)
            second = self.field(x + first / 8)
            third = self.field(x + second / 8)
            x = x + (first + 2 * second + 2 * third + self.field(x + third / 4)) / 24
        return self.head(x).squeeze(-1)


def neural_ode(seed: int) -> Setup:
    return replace(mlp(seed), network=Flows)


class Distances(nn.Module):
    """The class whose prototype is nearest."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.prototypes = feed_forward(64, 48, 16), nn.Parameter(torch.randn(10, 16))

    def forward(self, inputs: Inputs) -> Tensor:
        return -torch.cdist(self.body(inputs["image"].flatten(1)), self.prototypes).square() / 4


def prototypes(seed: int) -> Setup:
    return replace(cnn(seed), network=Distances, **split(digits(seed)))


def span_corruption(seed: int) -> Setup:
    """Text of which only the second half of each window counts."""

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.transpose(1, 2)[..., 12:], targets[:, 12:], reduction="none").mean(1)

    return replace(gpt(seed), loss_fn=loss_fn)


MADE = (
    deep_sets, equivariant, hypernetwork, spiking, ordered_quantiles, ctc, pointer, capsules, normalising_flow, energy,
    lars, domain_adversarial, dataclass_outputs, model_output, slow_temperature, mixture_density, ordinal, neural_ode,
    prototypes, span_corruption,
)  # fmt: skip


def _subject(make: Callable[[int], Setup]) -> Callable[[int], Subject]:
    return lambda seed: make(seed).subject()


FRESH_HEALTHY: dict[str, Callable[[int], Subject]] = {make.__name__: _subject(make) for make in MADE}
