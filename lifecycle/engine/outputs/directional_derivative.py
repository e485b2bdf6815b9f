"""Is the gradient that backward gives the loss's own slope?

It is not where a part of the loss is detached by design: an energy model's samples are held fixed, a twin's or a
teacher's answer gets no gradient. It points the other way where an adversary's gradient is turned round. And it is not
where a backward pass of one's own is wrong. What is asked here is the loss alone, at weights that are moved a little.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# How far each parameter is moved, twice, in pairs of which the first that shows a slope counts. A loss in float64 has a
# resolution of 1e-10 of itself at the smaller steps, which meet few kinks; one that goes through float32 on its way,
# or is in float32, none there and 1e-4 at the larger ones.
FINE, COARSE = (1e-5, 1e-6), (1e-2, 1e-3)
# Times the resolution of the loss's type, what rounding may change it by.
ROUNDED = 4
# Of the slope: a difference between both steps, or between the slopes to both sides, from which on none is known.
AGREE = 0.05
# Times its own uncertainty, what a slope has to be off by.
SURE = 3
# Parameters that are asked one by one, and the weights of all their passes together.
MOST_ASKED, MOST_PASSED = 64, 2**28

Way = tuple[Tensor, Tensor]
Gradients = Mapping[str, Tensor]


@dataclass(frozen=True)
class Slope:
    """Along one direction: that of the `loss`, what it may be off by, and what the `gradient` says of it.

    `size` is what the gradient says along a direction like this one, so that one that meets little of it by chance is
    held against what it might have met.
    """

    loss: float
    error: float
    gradient: float
    size: float

    @property
    def known(self) -> bool:
        """False at a kink or a step, or where the loss's type is too coarse."""
        return self.error <= AGREE * self._size

    @property
    def relative_error(self) -> float:
        """By which share of its size the gradient differs, beyond what the slope may be off by; 0 if that is unknown"""
        beyond = abs(self.loss - self.gradient) - SURE * self.error
        return beyond / self._size if self.known and beyond > 0 else 0.0

    @property
    def backward_share(self) -> float:
        """What backward gives, of the slope: 1 if it is the derivative, below 0 if it is turned round."""
        return (
            self.gradient / self.loss if abs(self.loss) > SURE * self.error else math.copysign(math.inf, self.gradient)
        )

    @property
    def of_gradient(self) -> float:
        """The slope by the gradient: 1 if it is the derivative, and where it is not known."""
        return self.loss / self.gradient if self.known and self.gradient else 1.0

    @property
    def _size(self) -> float:
        return max(self.size, abs(self.loss))


def in_float64(value: Any) -> Any:
    """A tensor, or a mapping of tensors: those of float numbers in float64."""
    if isinstance(value, dict):
        return {name: in_float64(tensor) for name, tensor in value.items()}
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def to_float64(model: nn.Module) -> nn.Module:
    """The same module, its parameters and buffers in float64."""
    return model._apply(in_float64)


def copy_in_float64(value: Any) -> Any:
    """A copy of a model, or of a loss that is a module, in float64; what is no module, as it is."""
    return to_float64(copy.deepcopy(value)) if isinstance(value, nn.Module) else value


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.numel()
    }


def gradients_of(parameters: Mapping[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    """Those of the loss, dense; zeros of a parameter that it does not reach."""
    if not loss.requires_grad:
        return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient.to_dense()
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def finite(gradients: Gradients) -> bool:
    """True if all are."""
    return all(bool(gradient.isfinite().all()) for gradient in gradients.values())


class Slopes:
    """The slopes of a loss, held against gradients. `mean_loss` asks the model, with equal random numbers each time.

    `padding` are rows of tables that stay where they are: torch's embedding gives them no gradient by design. The
    parameters are moved meanwhile, and are afterwards bit for bit what they were.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Gradients,
        mean_loss: Callable[[], Tensor],
        padding: Sequence[tuple[Tensor, int]] = (),
    ) -> None:
        self._padding = padding
        self._parameters, self._gradients, self._mean_loss = parameters, gradients, mean_loss
        at = self._loss()
        self._at, self._eps = float(at), torch.finfo(at.dtype).eps
        self._pairs = (FINE, COARSE) if at.dtype == torch.float64 else (COARSE,)
        self._norms = {name: float(torch.linalg.vector_norm(gradient)) for name, gradient in gradients.items()}

    def repeats(self) -> bool:
        """True if the loss is the same when it is asked again."""
        return float(self._loss()) == self._at

    def _loss(self) -> Tensor:
        """With a graph, though nobody asks for it: a forward pass may need one, as a penalty of gradients does."""
        with torch.enable_grad():
            return self._mean_loss().detach()

    @property
    def pulled(self) -> list[str]:
        """Parameters whose gradient is not zero."""
        return [name for name, norm in self._norms.items() if norm > 0]

    def along_gradient(self, *names: str) -> Slope:
        """Along the gradients of these at once, of all without names. Each counts by its norm, so that a part whose
        gradient is turned round shows beside a larger one."""
        chosen = [name for name in names or self._norms if self._norms[name] > 0]
        ways = [(self._parameters[name], self._gradients[name] / self._norms[name]) for name in chosen]
        size = sum(self._norms[name] for name in chosen)
        return self._slope(ways, size, size)

    def at_random(self, seed: int, *names: str) -> Slope:
        """Along a random direction of these, also of those without a gradient: what one lacks, it does not show."""
        generator, ways, said, sizes = torch.Generator().manual_seed(seed), list[Way](), 0.0, list[float]()
        for name in names or self._norms:
            parameter, gradient = self._parameters[name], self._gradients[name]
            way = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            for table, row in self._padding:
                if table is parameter:
                    way[row] = 0
            way = (way / torch.linalg.vector_norm(way)).to(parameter.device, parameter.dtype)
            ways.append((parameter, way))
            said += float((gradient.conj() * way).real.sum())
            sizes.append(self._norms[name] / math.sqrt(parameter.numel()))
        return self._slope(ways, said, math.hypot(*sizes))

    def some(self) -> list[str]:
        """MOST_ASKED of the parameters, evenly spread; fewer of a large network, each of whose passes takes long."""
        names, weights = list(self._norms), sum(parameter.numel() for parameter in self._parameters.values())
        most = max(1, min(MOST_ASKED, MOST_PASSED // max(1, weights)))
        return names[:: -(-len(names) // most) or 1]

    def _slope(self, ways: Sequence[Way], said: float, size: float) -> Slope:
        slope = Slope(0.0, math.inf, said, size)
        with torch.no_grad(), _held([parameter for parameter, _ in ways]) as before:
            for pair in self._pairs if ways else ():
                slope = Slope(*self._of_pair(ways, before, pair), said, size)
                if slope.known:
                    break
        return slope

    def _of_pair(self, ways: Sequence[Way], before: Sequence[Tensor], pair: tuple[float, float]) -> tuple[float, float]:
        """The slope, and what it may be off by: kinks and steps show as slopes to both sides that are not equal, or
        that change with the step."""
        middle, sides, rounded = list[float](), math.inf, math.inf
        for step in pair:
            up, down = (self._moved(ways, before, signed) for signed in (step, -step))
            middle.append((up - down) / (2 * step))
            sides = abs(up - 2 * self._at + down) / (2 * step)
            rounded = ROUNDED * self._eps * max(abs(up), abs(down), abs(self._at)) / step
        error = abs(middle[0] - middle[1]) + sides + rounded
        return middle[1], error if math.isfinite(error) else math.inf

    def _moved(self, ways: Sequence[Way], before: Sequence[Tensor], step: float) -> float:
        for (parameter, way), value in zip(ways, before, strict=True):
            parameter.copy_(value + step * way)
        return float(self._loss())


@contextlib.contextmanager
def _held(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Their values, which they have again afterwards."""
    before = [parameter.clone() for parameter in parameters]
    try:
        yield before
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)


def slopes_of(model: nn.Module, mean_loss: Callable[[], Tensor]) -> Slopes:
    """Those of a model's loss, to be held against what backward gives now."""
    parameters = trained(model)
    return Slopes(parameters, gradients_of(parameters, mean_loss()), mean_loss)


def slope_over_gradient(model: nn.Module, mean_loss: Callable[[], Tensor]) -> float:
    """The loss's slope along its gradient by the gradient's size: 1 where nothing is detached, or none is known."""
    return slopes_of(model, mean_loss).along_gradient().of_gradient
