"""The loss as a function of the outputs alone: how low it goes for each row, and between which ends it is held.

A loss that squashes what it is given twice ends far above zero, however right and sure the outputs are, and rises
little however wrong they are. Label smoothing has the first (and no upper end), a Brier score the second (and ends at
zero), so both together are asked for, and of the row that has it best.

A loss that can be low and is wrong all the same: logarithms that are missing, and logits that a rectifier cuts off.

In both the outputs can go where the loss wants them, so that its lowest value tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.output_range import Box
from trainworthy.lifecycle.gates.check import Outcome

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
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        for at, gradient in enumerate(gradients):
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
    candidates = [lowest_loss_within(loss_of, some, endless(some)) for some in (start, small)]
    lowest = [candidate for candidate in candidates if candidate is not None]
    if not lowest or bool((highest - neutral > RISES * (neutral - torch.stack(lowest).amin(0))).any()):
        return None
    return torch.stack(lowest).amin(0), neutral, highest


# Share of a fresh network's logits that lie at an end, where no gradient passes. A rectifier cuts off about half.
CUT = 0.1
SHIFT, EQUAL = 3.0, 1e-4
REFUSES = (RuntimeError, ValueError, IndexError)
# Of the names of torch's backward functions: what cuts off, and what only moves values to other places.
RECTIFIERS = ("Relu", "Threshold", "Clamp", "Hardtanh", "Maximum")
SHAPES = ("View", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "TBackward", "Permute", "Alias", "Slice", "Clone",
          "ToCopy", "AsStrided", "Select", "Unflatten")  # fmt: skip


def without_logarithm(loss_of: LossOf, outputs: list[Tensor], targets: Tensor) -> Outcome | None:
    """What is wrong if labels are classes, and a loss that is never above zero is a straight line in probabilities.

    So is minus the probability of the label. One minus it is known as the mean absolute error, and meant.
    """
    if len(outputs) != 1 or (targets.is_floating_point() and not bool(((targets == 0) | (targets == 1)).all())):
        return None
    for probability, other, outputs_of in _as_probabilities(loss_of, outputs[0].detach().float().cpu(), targets):
        try:
            first, second, between = (
                loss_of([outputs_of(p)]).detach() for p in (probability, other, (probability + other) / 2)
            )
        except REFUSES:
            continue
        far = ((first + second) / 2 - between).abs().max()
        straight = bool(far <= EQUAL * first.abs().max()) and not bool((first - second).abs().max() <= far)
        if straight and bool((first.maximum(second) <= 0).all()):
            evidence = (
                f"the loss is a straight line in the probabilities and never above zero, as {float(first[0]):.3g}: it "
            )
            evidence += "is lowest where one class has all, whatever the others' shares are"
            cause = "minus a probability in the place of minus its logarithm: nll_loss takes log-probabilities"
            fix = "give raw outputs to cross_entropy, or log_softmax(outputs) to nll_loss"
            return Outcome("fail", evidence, float(first.mean()), 0.0, cause, fix)
    return None


def other_axis(loss_of: LossOf, outputs: list[Tensor], targets: Tensor) -> Outcome | None:
    """What is wrong if each label chooses among the outputs of one axis, and the softmax is along another."""
    start = outputs[0].detach().float().cpu()
    shape = list(start.shape)
    axes = [axis for axis in range(1, start.ndim) if shape[:axis] + shape[axis + 1 :] == list(targets.shape)]
    if len(outputs) != 1 or targets.is_floating_point() or len(axes) != 1 or is_softmax(loss_of, [start], 0, axes[0]):
        return None
    wrong = [axis for axis in range(1, start.ndim) if axis not in axes and is_softmax(loss_of, [start], 0, axis)]
    if not wrong:
        return None
    evidence = f"outputs of shape {tuple(shape)} have {shape[axes[0]]} classes along dimension {axes[0]}, and the loss "
    evidence += f"goes by their differences along dimension {wrong[0]}"
    cause = "softmax or log_softmax over the positions, and not over the classes"
    return Outcome("fail", evidence, wrong[0], axes[0], cause, f"softmax over dim={axes[0]}")


Probabilities = tuple["Tensor", "Tensor", Callable[["Tensor"], "Tensor"]]


def _as_probabilities(loss_of: LossOf, start: Tensor, targets: Tensor) -> Iterator[Probabilities]:
    """Two different probabilities and what makes outputs of them, where outputs are such or are turned into such."""
    generator = torch.Generator().manual_seed(0)
    raw, other = (torch.randn(start.shape, generator=generator) for _ in range(2))
    if bool(((start >= 0) & (start <= 1)).all()):
        yield start, start.roll(1, 0), lambda p: p
    for axis in range(1, start.ndim):
        if is_softmax(loss_of, [start], 0, axis):
            yield raw.softmax(axis), other.softmax(axis), torch.log
    if start.shape == targets.shape:
        yield raw.sigmoid(), other.sigmoid(), torch.logit


def cut_logits(loss_of: LossOf, outputs: list[Tensor], box: Box, pushed: list[list[list[Tensor]]]) -> Outcome | None:
    """A warning if a rectifier cuts many of a softmax's logits off, where no gradient passes."""
    start = [value.detach().float().cpu() for value in outputs]
    for at, (low, high) in enumerate(box):
        if not _is_rectified(outputs[at]) or not any(
            is_softmax(loss_of, start, at, axis) for axis in range(1, start[at].ndim)
        ):
            continue
        for end in (low, high):
            cut = (start[at] == end) & _moves(start[at], [leaves[at] for some in pushed for leaves in some])
            share = float(cut.float().mean())
            if share >= CUT:
                evidence = (
                    f"{share:.0%} of the fresh network's logits are cut off at {float(start[at][cut][0]):.3g}, where "
                )
                evidence += "no gradient passes; a softmax goes by differences alone, so that nothing is won by an end"
                cause, fix = "a ReLU or clamp as last layer, before a softmax", "give the last linear layer's outputs"
                return Outcome("fail", evidence, share, CUT, cause, f"{fix} to the loss", severity="warning")
    return None


def _moves(start: Tensor, pushed: list[Tensor]) -> Tensor:
    """Which elements lie elsewhere with other weights: those of a mask do not."""
    pushed_values = torch.stack([value.detach().float().cpu() for value in pushed])
    return (pushed_values != start).any(0)


def _is_rectified(output: Tensor) -> bool:
    """Whether the last operation but for changes of shape is a rectifier: a mean of rectified places is none."""
    node: torch.autograd.graph.Node | None = output.grad_fn
    while node is not None and node.name().startswith(SHAPES) and node.next_functions:
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(RECTIFIERS)


def is_softmax(loss_of: LossOf, start: list[Tensor], at: int, axis: int) -> bool:
    """Whether the loss stays where all outputs along the axis are raised alike, and not where some are."""

    def far(change: Tensor) -> float:
        moved = [value + SHIFT * change if place == at else value for place, value in enumerate(start)]
        return float((loss_of(moved) - before).abs().max() / before.abs().max().clamp(min=1e-6))

    size = start[at].shape[axis]
    across = [1 if place == axis else size for place, size in enumerate(start[at].shape)]
    along = [size if place == axis else 1 for place in range(start[at].ndim)]
    try:
        before = loss_of(start).detach()
        alike = torch.randn(across, generator=torch.Generator().manual_seed(0))
        return size > 1 and far(alike) < EQUAL < far((torch.arange(size) % 2).float().reshape(along))
    except REFUSES:
        # A loss that takes no such outputs.
        return False
