"""The least loss that a constant output gets, found through the loss function alone.

Any loss, any shape of outputs: no label is read. For log losses it is the entropy of the labels' shares, for a squared
error their variance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.outputs.auxiliary import without_auxiliary
from trainworthy.lifecycle.engine.outputs.free_outputs import (
    Ends,
    all_at_ends,
    before,
    held_links,
    link_of,
    lowest_loss,
    probed,
)
from trainworthy.lifecycle.engine.outputs.pytree import is_float


@dataclass(frozen=True)
class ConstantLosses:
    """Mean losses of outputs that are equal for every row: the best ones, and those that favour nothing.

    Neutral are logits of zero, equal probabilities, a regression's zero.
    """

    best: float
    neutral: float


def constant_losses(
    loss_fn: Callable[[Any, Tensor], Tensor], outputs: Any, targets: Tensor, ends: Mapping[int, Ends] | None = None
) -> ConstantLosses:
    """Losses of constants in the place of these outputs, which say only what shape and range an output has.

    A constant may differ along each axis of an output but the first, by a sum over the axes: so it knows the shares of
    classes and no row. Auxiliary terms stay as the network gave them. With `ends`, by the place of a leaf, constants
    stay within what the network reaches; if these alone hold them, the best one is minus infinity. Raises ProbeError
    where the loss refuses constants.
    """
    loss_fn = without_auxiliary(loss_fn, outputs, targets)
    leaves, spec = tree_flatten(outputs)
    leaves = [leaf.detach().float() if is_float(leaf) else leaf for leaf in leaves]
    links = {at: link_of([leaf]) for at, leaf in enumerate(leaves) if is_float(leaf)}
    numbers_of = {at: inverted for at, link in links.items() if (inverted := before(link, leaves[at])) is not None}
    if ends:
        links = held_links(links, {at: leaves[at] for at in ends}, ends)
    free = [(at, torch.zeros(shape, device=leaves[at].device)) for at in links for shape in _shapes(leaves[at])]

    def made(numbers: dict[int, Tensor]) -> list[Any]:
        filled = list(leaves)
        for place, link in links.items():
            parts = [numbers[n] for n, (at, _) in enumerate(free) if at == place]
            filled[place] = link(sum(parts, torch.zeros_like(leaves[place])))
        return filled

    def loss(numbers: dict[int, Tensor]) -> Tensor:
        return loss_fn(tree_unflatten(made(numbers), spec), targets).float().mean()

    start = {n: numbers for n, (_, numbers) in enumerate(free)}
    with torch.no_grad():
        neutral = float(probed(loss)(start))
    # From the network's own mean as well: zeros may be a place without a gradient, as under a clamp.
    own = {
        n: _own_mean(numbers_of[at], numbers) if at in numbers_of else numbers for n, (at, numbers) in enumerate(free)
    }
    best, numbers = min((lowest_loss(begin, loss) for begin in (start, own)), key=lambda search: search[0])
    if ends and all_at_ends([(made(numbers)[at], bounds) for at, bounds in ends.items()]):
        best = float("-inf")
    return ConstantLosses(best, neutral)


def _own_mean(leaf: Tensor, numbers: Tensor) -> Tensor:
    """The leaf's mean in the shape of the numbers; where several shapes are summed, each takes an equal part."""
    kept = [axis for axis, size in enumerate(numbers.shape) if size > 1]
    over = [axis for axis in range(leaf.ndim) if axis not in kept]
    mean = leaf.mean(dim=over, keepdim=True) if over else leaf
    return mean.reshape(numbers.shape) / max(1, leaf.ndim - 1)


def _shapes(leaf: Tensor) -> list[tuple[int, ...]]:
    """Of the free numbers: one for each axis but the first, and a single one where there is no other axis."""
    axes = range(1, leaf.ndim)
    shapes = [tuple(size if at == axis else 1 for at, size in enumerate(leaf.shape)) for axis in axes]
    return shapes or [(1,) * leaf.ndim]
