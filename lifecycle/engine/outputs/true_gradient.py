"""Gradients held against the slope of a loss: which are off, by how much, and what of the code tells why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.directional_derivative import (
    Gradients,
    Slopes,
    finite,
    gradients_of,
    trained,
)
from trainworthy.lifecycle.engine.outputs.gradient_breaks import Breaks, estimates_held, padding_of
from trainworthy.lifecycle.engine.training.random_state import seed_torch

# Of all gradients together, and of one parameter's alone. In float64 the slopes of healthy networks are within 1e-6 of
# it, and twice that share of a network is what a single one has to be off by to be named.
TOLERANCE, TOLERANCE_ALONE = 0.002, 0.02
# Gradients of random signs have a cosine with any direction of this many times 1 / sqrt(numbers) at most.
BY_CHANCE = 3
# Of a gradient's energy, what is the same at each pass, below which too few numbers were asked to speak of chance.
HALF = 0.5
DIRECTIONS = 2

Whole = Literal["derivative", "off", "all_turned", "drowned", "not_repeatable", "not_finite", "unknown", "no_gradient"]


@dataclass(frozen=True)
class Off:
    """A parameter whose gradient is not the slope. `share` is what backward gives, of the slope along the gradient;
    infinite where the loss does not change. `relative_error` is by which share of its size it differs along the
    direction that showed it."""

    name: str
    share: float
    relative_error: float

    @property
    def turned(self) -> bool:
        """True if the gradient points to where the loss rises."""
        return self.share < 0 and math.isfinite(self.share)

    @property
    def flipped(self) -> bool:
        """True if it is turned round alone, in no other direction. `relative_error` is of the whole gradient."""
        across = self.relative_error**2 - (1 - self.share) ** 2
        return self.turned and across <= (TOLERANCE_ALONE * self.share) ** 2


@dataclass(frozen=True)
class Compared:
    """What was found. `off` are the parameters that are off, the worst first, of those that were `asked`.

    `noise` is the norm of what differs between two backward passes, of the gradient's. `breaks` says what of the code
    keeps backward from being the derivative (gradient_breaks.py), () if nothing of it was seen.
    """

    whole: Whole
    asked: int = 0
    off: tuple[Off, ...] = ()
    noise: float = 0.0
    breaks: tuple[str, ...] = ()
    along: float = math.nan
    gradients: dict[str, Tensor] = field(default_factory=dict)

    @property
    def turned(self) -> tuple[Off, ...]:
        """Those that are turned round."""
        return tuple(deviation for deviation in self.off if deviation.turned)

    @property
    def turned_by_nothing(self) -> bool:
        """True if some are, and nothing was seen in the code that turns them: no healthy network does that."""
        return bool(self.turned) and not self.breaks


def compare(model: nn.Module, mean_loss: Callable[[], Tensor]) -> Compared:
    """Hold what backward gives against the slope of the loss; `mean_loss` makes a forward pass, with equal random
    numbers each time. First along a few directions of all parameters; each alone only if these deviate."""
    with estimates_held(model):
        return _compared(model, mean_loss)


def _compared(model: nn.Module, mean_loss: Callable[[], Tensor]) -> Compared:
    parameters = trained(model)
    breaks = Breaks()
    with breaks:
        loss = mean_loss()
    if not loss.requires_grad:
        return Compared("no_gradient")
    break_words, padding = breaks.look(model, loss), padding_of(loss)
    seed_torch(1)
    gradients = gradients_of(parameters, loss)
    if not finite(gradients):
        return Compared("not_finite", breaks=break_words)
    slopes = Slopes(parameters, gradients, mean_loss, padding)
    if not slopes.repeats():
        return Compared("not_repeatable", breaks=break_words)
    noise, drowned = _noise(parameters, gradients, mean_loss)
    if drowned:
        return Compared("drowned", noise=noise, breaks=break_words, gradients=gradients)
    if noise:
        # Its mean is what can be the slope; of one draw no group tells more.
        return Compared("derivative", noise=noise, breaks=break_words, gradients=gradients)
    whole = [slopes.along_gradient(), *(slopes.at_random(seed) for seed in range(DIRECTIONS))]
    known = [slope for slope in whole if slope.known]
    along = whole[0].of_gradient
    if known and not any(slope.relative_error > TOLERANCE for slope in known):
        return Compared("derivative", len(parameters), breaks=break_words, along=along, gradients=gradients)
    return _alone(slopes, break_words, along, gradients)


def _alone(slopes: Slopes, breaks: tuple[str, ...], along: float, gradients: dict[str, Tensor]) -> Compared:
    """Each parameter for itself."""
    names, off, asked, turned = slopes.some(), list[Off](), 0, 0
    pulled = set(slopes.pulled)
    for name in names:
        measured = [slopes.along_gradient(name)] if name in pulled else []
        if not any(slope.relative_error > TOLERANCE_ALONE for slope in measured):
            measured.append(slopes.at_random(0, name))
        if not all(slope.known for slope in measured):
            continue
        asked += 1
        worst = max(measured, key=lambda slope: slope.relative_error)
        if worst.relative_error > TOLERANCE_ALONE:
            off.append(Off(name, measured[0].backward_share if name in pulled else 0.0, worst.relative_error))
            turned += off[-1].turned
    off.sort(key=lambda deviation: -deviation.relative_error)
    if not off and 2 * asked < len(names):
        return Compared("unknown", breaks=breaks, along=along, gradients=gradients)
    whole: Whole = "all_turned" if 1 < turned == asked and _one_factor(off) else "off" if off else "derivative"
    return Compared(whole, asked, tuple(off), 0.0, breaks, along, gradients)


def _one_factor(off: list[Off]) -> bool:
    shares = [deviation.share for deviation in off]
    return max(shares) - min(shares) <= TOLERANCE_ALONE * abs(min(shares))


def _noise(
    parameters: Mapping[str, Tensor], gradients: Gradients, mean_loss: Callable[[], Tensor]
) -> tuple[float, bool]:
    """What differs in another backward pass with other random numbers behind an equal forward pass, by the gradient's
    norm; and whether the two have no more in common than by chance."""
    loss = mean_loss()
    seed_torch(2)
    again = gradients_of(parameters, loss)
    norm = math.sqrt(sum(float(gradient.abs().square().sum()) for gradient in gradients.values()))
    other = math.sqrt(sum(float(gradient.abs().square().sum()) for gradient in again.values()))
    difference = math.sqrt(
        sum(float((again[name] - gradient).abs().square().sum()) for name, gradient in gradients.items())
    )
    eps = max(torch.finfo(gradient.dtype).eps for gradient in gradients.values())
    if not difference > math.sqrt(eps) * max(norm, other):
        # Equal sums, in another order.
        return 0.0, False
    common = sum(float((again[name].conj() * gradient).real.sum()) for name, gradient in gradients.items())
    numbers = sum(gradient.numel() for gradient in gradients.values())
    cosine = common / (norm * other) if norm and other else 0.0
    return difference / max(norm, other) / math.sqrt(2), cosine < min(HALF, BY_CHANCE / math.sqrt(numbers))


def shares(off: Sequence[Off], who: str = "backward gives") -> str:
    """The worst ones in words."""
    worst = "; ".join(f"{_in_words(deviation)} for {deviation.name}" for deviation in off[:3])
    return f"{who} {worst}" + (f" and {len(off) - 3} more" if len(off) > 3 else "")


def _in_words(deviation: Off) -> str:
    if math.isinf(deviation.share):
        return "a gradient along which the loss does not change"
    if abs(deviation.share - 1) <= TOLERANCE_ALONE:
        return f"a gradient that is off by {deviation.relative_error:.0%} of its size"
    return f"{deviation.share:.2f} of the slope of the loss"
