"""The loss as a function of the outputs alone: how low it goes for each row, and between which ends it is held.

A loss that squashes what it is given twice ends far above zero, however right and sure the outputs are, and rises
little however wrong they are. Label smoothing has the first (and no upper end), a Brier score the second (and ends at
zero), so both together are asked for, and of the row that has it best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.confined import Box

LossOf = Callable[[list[Tensor]], Tensor]

ITERATIONS = 120
# Outputs of these sizes, of random signs: a loss that is held is as large at both.
SIZES, DRAWS = (1e2, 1e4), 4
# Of the loss at outputs of 0: the upper end. Measured: twice squashed 1.1 to 2; a log loss 70 and more.
UPPER_END = 4.0
# How far the loss rises from there, against how far it falls. Measured: twice squashed 0.01 to 1.6; a log loss of
# smoothed labels whose logarithm is kept from zero 3 and more.
RISES = 2.0


def loss_of_outputs(subject: Subject, base: Any, places: list[int], targets: Tensor) -> LossOf:
    """The losses (N,) of outputs, given as the tensors at places. On the CPU: CUDA dies of what a loss refuses."""
    leaves, structure = tree_flatten(base)
    leaves = [leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def loss_of(outputs: list[Tensor]) -> Tensor:
        for at, output in zip(places, outputs, strict=True):
            leaves[at] = output
        return subject.recipe.loss_fn(tree_unflatten(leaves, structure), targets.cpu())

    return loss_of


def lowest_loss_within(loss_of: LossOf, start: list[Tensor], box: Box) -> Tensor | None:
    """Each row's lowest loss over outputs within the box, by Rprop: steps that grow while the gradient keeps its sign.

    None if the loss is not finite on the way.
    """
    outputs = [value.clamp(low, high) for value, (low, high) in zip(start, box, strict=True)]
    steps = [value.abs().clamp(min=0.1) * 0.1 for value in outputs]
    before = [torch.zeros_like(value) for value in outputs]
    best = torch.tensor(float("inf"))
    for _ in range(ITERATIONS):
        leaves = [value.detach().requires_grad_() for value in outputs]
        losses = loss_of(leaves)
        loss = losses.mean()
        if not bool(loss.isfinite()):
            return None
        best = best.minimum(losses.detach())
        if not loss.requires_grad:
            return best
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        for at, gradient in enumerate(found):
            if gradient is None:
                continue
            sign = gradient.nan_to_num(0.0).sign()
            agree = sign * before[at]
            steps[at] = (steps[at] * agree.add(1).mul(0.4).add(0.5).where(agree != 0, torch.ones(()))).clamp(1e-9, 1e6)
            outputs[at] = (outputs[at] - sign * steps[at]).clamp(*box[at])
            before[at] = sign
    return best


def endless(outputs: list[Tensor]) -> Box:
    """A box that holds nothing back."""
    return [(value.new_full((), -float("inf")), value.new_full((), float("inf"))) for value in outputs]


def held_losses(loss_of: LossOf, start: list[Tensor]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Each row's lowest loss over any outputs, the one at outputs of 0, and the highest; None if none holds it."""
    neutral = loss_of([torch.zeros_like(value) for value in start]).detach()
    highest = neutral
    for size in SIZES:
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(draw)
            signs = [torch.randn(value.shape, generator=generator).sign() for value in start]
            for way in (size, -size):
                highest = highest.maximum(loss_of([way * sign for sign in signs]).detach())
        if not bool((highest <= UPPER_END * neutral).all()):
            return None
    small = [0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)) for value in start]
    found = [lowest_loss_within(loss_of, some, endless(some)) for some in (start, small)]
    lowest = [one for one in found if one is not None]
    if not lowest or bool((highest - neutral > RISES * (neutral - torch.stack(lowest).amin(0))).any()):
        return None
    return torch.stack(lowest).amin(0), neutral, highest
