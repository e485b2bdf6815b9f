"""Is the gradient that backward gives the loss's own slope?

It is not where a part of the loss is detached by design: an energy model's samples are held fixed, a twin's or a
teacher's answer gets no gradient. And it points the other way where an adversary's gradient is turned round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# How far each parameter is moved along its gradient, twice, where the loss is in float64, and where it is not, as that
# of a target in float32. The two slopes agree to 0.02 where the network has one: a step, as a routing that flips, has
# none.
MOVED, MOVED_IN_FLOAT32, AGREE = (1e-4, 1e-5), (1e-2, 1e-3), 0.05
# Times the resolution of the loss's type, what a move has to change it by at least.
SEEN = 30
# Parameters that are asked one by one.
MOST_ASKED = 64
Way = tuple["nn.Parameter", "Tensor", float]


def slope_over_gradient(model: nn.Module, mean_loss: Callable[[], Tensor]) -> float:
    """The loss's slope along its gradient by the gradient's size: 1 where nothing is detached, and where none is known.

    Each parameter counts by its gradient's norm, so that a part whose gradient is turned round shows beside a larger
    one. `mean_loss` asks the model, in float64, with equal random numbers each time; the model is moved meanwhile, and
    lies within rounding of where it was afterwards.
    """
    slope = _slope(_ways(model, mean_loss), mean_loss)
    return 1.0 if slope is None else slope


def extreme_slopes(model: nn.Module, mean_loss: Callable[[], Tensor]) -> tuple[float, float]:
    """The same of the parameters where it is least and most, of MOST_ASKED: -1 where a gradient is turned round."""
    ways = _ways(model, mean_loss)
    asked = [_slope([way], mean_loss) for way in ways[:: -(-len(ways) // MOST_ASKED) or 1]]
    slopes = [one for one in asked if one is not None] or [1.0]
    return min(slopes), max(slopes)


def in_float64(one: Any) -> Any:
    """A tensor, or a mapping of tensors: those of float numbers in float64."""
    if isinstance(one, dict):
        return {name: in_float64(tensor) for name, tensor in one.items()}
    return one.double() if one.is_floating_point() else one


def _ways(model: nn.Module, mean_loss: Callable[[], Tensor]) -> list[Way]:
    """Each parameter with the direction of its gradient and its norm; none where they are not finite."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = mean_loss()
    if not loss.requires_grad:
        return []
    gradients = list(torch.autograd.grad(loss, asked, allow_unused=True))
    ways = list[Way]()
    # From the end, so that none is held twice.
    for parameter in reversed(asked):
        gradient = gradients.pop()
        size = 0.0 if gradient is None else float(gradient.norm())
        if gradient is not None and size > 0:
            ways.append((parameter, gradient / size, size))
    return ways if math.isfinite(sum(size for *_, size in ways)) else []


def _slope(ways: Sequence[Way], mean_loss: Callable[[], Tensor]) -> float | None:
    """Along all of these at once; None where the loss has no slope there, or none that its type shows."""
    size, slopes = sum(size for *_, size in ways), list[float]()
    if not ways:
        return None
    with torch.no_grad():
        type_ = mean_loss().dtype
        for moved in MOVED if type_ == torch.float64 else MOVED_IN_FLOAT32:
            values = []
            for step in (moved, -2 * moved):
                _move(ways, step)
                values.append(float(mean_loss()))
            _move(ways, moved)
            if not abs(values[0] - values[1]) > SEEN * torch.finfo(type_).eps * max(map(abs, values)):
                return None
            slopes.append((values[0] - values[1]) / (2 * moved) / size)
    return slopes[-1] if abs(slopes[0] - slopes[1]) <= AGREE * max(1.0, abs(slopes[1])) else None


def _move(ways: Sequence[Way], step: float) -> None:
    for parameter, way, _ in ways:
        parameter.add_(way, alpha=step)
