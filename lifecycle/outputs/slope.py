"""Is the gradient that backward gives the loss's own slope?

It is not where a part of the loss is detached by design: an adversary's gradient is turned round, an energy model's
samples are held fixed. Each update then changes what the loss is asked of, so that its value tells no progress.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

# How far each parameter is moved along its gradient, twice. In float64 the two slopes agree to 0.002 where the network
# has one: a step, as a routing that flips, has none.
MOVED, AGREE = (1e-5, 1e-4), 0.02


def slope_over_gradient(model: nn.Module, mean_loss: Callable[[], Tensor]) -> float:
    """The loss's slope along its gradient by the gradient's size: 1 where nothing is detached, and where none is known.

    Each parameter counts by its gradient's norm, so that a part whose gradient is turned round shows beside a larger
    one. `mean_loss` asks the model, in float64, with equal random numbers each time; the model is moved meanwhile, and
    lies within rounding of where it was afterwards.
    """
    import torch

    ways = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = mean_loss()
    gradients = torch.autograd.grad(loss, ways, allow_unused=True) if loss.requires_grad else ()
    sizes = [0.0 if gradient is None else float(gradient.norm()) for gradient in gradients]
    pulled = [(p, g / size) for p, g, size in zip(ways, gradients, sizes, strict=False) if g is not None and size > 0]
    if not pulled or not math.isfinite(sum(sizes)):
        return 1.0
    slopes = []
    with torch.no_grad():
        for moved in MOVED:
            values = []
            for step in (moved, -2 * moved):
                _move(pulled, step)
                values.append(float(mean_loss()))
            _move(pulled, moved)
            slopes.append((values[0] - values[1]) / (2 * moved) / sum(sizes))
    return slopes[0] if abs(slopes[0] - slopes[1]) <= AGREE else 1.0


def in_float64(one: Any) -> Any:
    """A tensor, or a mapping of tensors: those of float numbers in float64."""
    if isinstance(one, dict):
        return {name: in_float64(tensor) for name, tensor in one.items()}
    return one.double() if one.is_floating_point() else one


def _move(pulled: list[tuple[nn.Parameter, Tensor]], step: float) -> None:
    for parameter, way in pulled:
        parameter.add_(way, alpha=step)
