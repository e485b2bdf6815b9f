"""Auxiliary terms: what a network computes itself and hands to the loss beside its prediction.

A load balance, a commitment, an entropy: a column or a leaf of the outputs that the loss adds whatever the label is. As
a free number it would fall without end, and the lowest loss of free outputs would say nothing. So it is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.outputs.pytree import is_float

LossFn = Callable[[Any, Tensor], Tensor]

# How far an element is moved to see whether its pull ends; below this share of the first pull, it has. A pull that
# grows is no term that the loss adds: a square with the wrong sign.
FAR, ENDS, GROWS = (1e3, 1e6), 0.01, 10.0
# Differences of gradients, as a share of them, that are rounding.
EQUAL = 1e-5
# Elements that are moved one by one; of more, all at once.
ONE_BY_ONE = 32


def without_auxiliary(loss_fn: LossFn, outputs: Any, targets: Tensor) -> LossFn:
    """The loss function with auxiliary terms held at their mean in these outputs; the same one if there are none.

    Auxiliary is an element whose pull is the same for any labels, always to one side, and neither ends nor grows. Where
    no other element is pulled by the labels, nothing is a prediction that the terms would be beside.
    """
    network_outputs = _NetworkOutputs(loss_fn, *tree_flatten(outputs), targets)
    masks = _auxiliary(network_outputs)
    if not masks:
        return loss_fn
    means = {at: _over_rows(network_outputs, at, lambda leaf: leaf.mean(0, keepdim=True)) for at in masks}

    def held(outputs: Any, targets: Tensor) -> Tensor:
        leaves, tree = tree_flatten(outputs)
        for at, mask in masks.items():
            leaves[at] = torch.where(mask, means[at].to(leaves[at].dtype), leaves[at])
        return loss_fn(tree_unflatten(leaves, tree), targets)

    return held


@dataclass(frozen=True, eq=False)
class _NetworkOutputs:
    """Outputs as a network gave them, flat, and their targets."""

    loss_fn: LossFn
    leaves: list[Any]
    tree: Any
    targets: Tensor

    def places(self) -> list[int]:
        return [at for at, leaf in enumerate(self.leaves) if is_float(leaf) and leaf.numel()]

    def has_rows(self, at: int) -> bool:
        """Whether the first axis is that of the rows, or of several lines a row."""
        leaf = self.leaves[at]
        return leaf.ndim > 0 and len(leaf) % len(self.targets) == 0

    def pulls(self, moved: dict[int, Tensor], targets: Tensor) -> dict[int, Tensor] | None:
        """Gradients of the summed loss at the float leaves, of which some are moved; None where it has none."""
        parts = {at: (moved[at] if at in moved else self.leaves[at]).detach().float() for at in self.places()}
        parts = {at: part.requires_grad_() for at, part in parts.items()}
        leaves = [parts.get(at, leaf) for at, leaf in enumerate(self.leaves)]
        try:
            loss = self.loss_fn(tree_unflatten(leaves, self.tree), targets).float().sum()
            gradients = torch.autograd.grad(loss, list(parts.values()), materialize_grads=True)
        except (RuntimeError, ValueError, IndexError, AssertionError):
            # A loss that refuses such outputs, or has no gradient.
            return None
        return dict(zip(parts, gradients, strict=True))


def _auxiliary(outputs: _NetworkOutputs) -> dict[int, Tensor]:
    """A mask of the auxiliary elements by leaf, of one row; empty where there are none."""
    alike = [{}, {at: outputs.leaves[at].roll(1, 0) for at in outputs.places() if outputs.has_rows(at)}]
    rows = len(outputs.targets)
    orders = [outputs.targets.roll(step, 0) for step in (0, 1, rows // 2)]
    looks = [[outputs.pulls(moved, targets) for targets in orders] for moved in alike]
    if rows < 2 or any(look is None for some in looks for look in some):
        return {}
    pulls = [[look for look in some if look is not None] for some in looks]
    free = {at: _same(outputs, at, [[look[at] for look in some] for some in pulls]) for at in outputs.places()}
    if all(bool(mask.all()) for mask in free.values()):
        return {}
    sides = {at: _side(outputs, at, [look[at] for some in pulls for look in some]) * mask for at, mask in free.items()}
    return _endless(outputs, sides, pulls[0][0])


def _same(outputs: _NetworkOutputs, at: int, pulls: list[list[Tensor]]) -> Tensor:
    """Which elements are pulled alike for any labels, in all rows."""
    differs = torch.zeros_like(pulls[0][0], dtype=torch.bool)
    for first, *other_pulls in pulls:
        for other in other_pulls:
            differs |= ~((other - first).abs() <= EQUAL * (first.abs() + other.abs()))
    return ~_over_rows(outputs, at, lambda mask: mask.any(0, keepdim=True), differs)


def _side(outputs: _NetworkOutputs, at: int, pulls: list[Tensor]) -> Tensor:
    """1 or -1 for elements that are always pulled to this side, in all rows; else 0."""
    low = torch.stack(
        [_over_rows(outputs, at, lambda values: values.amin(0, keepdim=True), pull.sign()) for pull in pulls]
    )
    high = torch.stack(
        [_over_rows(outputs, at, lambda values: values.amax(0, keepdim=True), pull.sign()) for pull in pulls]
    )
    low, high = low.amin(0), high.amax(0)
    return torch.where(low == high, low, torch.zeros_like(low)).nan_to_num(0.0)


def _endless(outputs: _NetworkOutputs, sides: dict[int, Tensor], first: dict[int, Tensor]) -> dict[int, Tensor]:
    """Of these elements, those whose pull goes on where they are moved far along it."""
    chosen = {at: torch.zeros_like(side, dtype=torch.bool) for at, side in sides.items()}
    for part in _parts(sides):
        goes_on = {at: side != 0 for at, side in part.items()}
        for far in FAR:
            moved = {at: outputs.leaves[at].float() - far * side for at, side in part.items()}
            pulls = outputs.pulls(moved, outputs.targets)
            for at in part:
                if pulls is None:
                    goes_on[at] = torch.zeros_like(goes_on[at])
                    continue
                along, before = pulls[at] * part[at], first[at].abs()
                steady = (along >= ENDS * before) & (along <= GROWS * before)
                goes_on[at] &= _over_rows(outputs, at, lambda mask: mask.all(0, keepdim=True), steady)
        for at, mask in goes_on.items():
            chosen[at] |= mask
    return {at: mask for at, mask in chosen.items() if bool(mask.any())}


def _parts(sides: dict[int, Tensor]) -> list[dict[int, Tensor]]:
    """The elements one by one, since one's pull may be another's factor; all at once where there are many."""
    places = [(at, place) for at, side in sides.items() for place in side.flatten().nonzero().flatten().tolist()]
    if len(places) > ONE_BY_ONE:
        return [sides]
    parts = []
    for at, place in places:
        alone = torch.zeros_like(sides[at])
        alone.view(-1)[place] = sides[at].flatten()[place]
        parts.append({at: alone})
    return parts


def _over_rows(
    outputs: _NetworkOutputs, at: int, reduce: Callable[[Tensor], Tensor], values: Tensor | None = None
) -> Tensor:
    """The values (a leaf's own if None) reduced over the rows, where the leaf has such."""
    leaf_values: Tensor = outputs.leaves[at].detach().float() if values is None else values
    return reduce(leaf_values) if outputs.has_rows(at) else leaf_values
