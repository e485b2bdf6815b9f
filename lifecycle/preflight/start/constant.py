"""The least loss that a constant output gets, found through the loss function alone.

Any loss, any shape of outputs: no label is read. For log losses it is the entropy of the labels' shares, for a squared
error their variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lifecycle.preflight.outputs import is_float

if TYPE_CHECKING:
    from torch import Tensor

# Of L-BFGS; a log loss of 64 classes is within 0.1 % after 20.
ITERATIONS = 60
SUMS_TO_ONE = 1e-3


@dataclass(frozen=True)
class ConstantLosses:
    """Mean losses of outputs that are equal for every row: the best ones, and those that favour nothing.

    Neutral are logits of zero, equal probabilities, a regression's zero.
    """

    best: float
    neutral: float


def constant_losses(loss_fn: Callable[[Any, Tensor], Tensor], outputs: Any, targets: Tensor) -> ConstantLosses:
    """Losses of constants in the place of these outputs, which say only what shape and range an output has.

    A constant may differ along each axis of an output but the first, by a sum over the axes: so it knows the shares of
    classes and no row.
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, spec = tree_flatten(outputs)
    leaves = [leaf.detach().float() if is_float(leaf) else leaf for leaf in leaves]
    links = [_link(leaf) if is_float(leaf) else None for leaf in leaves]
    free = [[torch.zeros(shape, device=leaf.device, requires_grad=True) for shape in _shapes(leaf)] for leaf in leaves]

    def loss() -> Tensor:
        made = [
            leaf if link is None else link(sum(parts, torch.zeros_like(leaf)))
            for leaf, link, parts in zip(leaves, links, free, strict=True)
        ]
        return loss_fn(tree_unflatten(made, spec), targets).float().mean()

    numbers = [part for parts in free for part in parts]
    optimizer = torch.optim.LBFGS(numbers, max_iter=ITERATIONS, line_search_fn="strong_wolfe")
    seen: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        seen.append(float(value.detach()))
        return value

    optimizer.step(closure)
    return ConstantLosses(best=min(value for value in seen if value == value), neutral=seen[0])


def _shapes(leaf: Any) -> list[tuple[int, ...]]:
    """Of the free numbers: one for each axis but the first, and a single one where there is no other axis."""
    if not is_float(leaf):
        return []
    axes = range(1, leaf.ndim)
    found = [tuple(size if at == axis else 1 for at, size in enumerate(leaf.shape)) for axis in axes]
    return found or [(1,) * leaf.ndim]


def _link(leaf: Tensor) -> Callable[[Tensor], Tensor]:
    """How free numbers become an output in the range of these: log-probabilities and probabilities stay such."""
    import torch

    for axis in range(1, leaf.ndim):
        if leaf.shape[axis] > 1 and bool((leaf <= 0).all()) and _is_one(leaf.exp().sum(axis)):
            return lambda free: torch.log_softmax(free, axis)
        if leaf.shape[axis] > 1 and bool((leaf >= 0).all()) and _is_one(leaf.sum(axis)):
            return lambda free: torch.softmax(free, axis)
    if bool(((leaf >= 0) & (leaf <= 1)).all()):
        return torch.sigmoid
    return torch.exp if bool((leaf > 0).all()) else lambda free: free


def _is_one(sums: Tensor) -> bool:
    return bool(((sums - 1).abs() < SUMS_TO_ONE).all())
