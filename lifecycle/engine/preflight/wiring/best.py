"""The outputs that a loss likes best, row by row, and how far apart they have to set the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import link_along
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.gates.check import ProbeError

ROWS, STEPS = 64, 24
# Probability of a class in its own rows less that in the others, at the outputs that the loss likes best. Label
# smoothing of 0.4 leaves 0.6; a second sigmoid 0.23, a second softmax at most that, a softmax over one output 0.
LEAST_GAP = 0.5
# As many different outputs as this must give more than two probabilities.
DIFFERENT = 10


def of_places(answers: Tensor, targets: Tensor, most: int | None = None, axis: int = 1) -> tuple[Tensor, Tensor]:
    """Answers with the classes along `axis` and targets `(N, ...)` with a row for each of their places, at most so many
    of them, evenly spread: `(P, classes)` and `(P,)`. Rows without places stay as they are; places whose target is
    below 0 count nowhere."""
    answers = of_size(answers, targets, axis)
    flat, places = answers.movedim(axis, -1).reshape(-1, answers.shape[axis]), targets.reshape(-1)
    if bool((places < 0).any()):
        flat, places = flat[places >= 0], places[places >= 0]
    if most is None or len(places) <= most:
        return flat, places
    chosen = torch.linspace(0, len(places) - 1, most, device=places.device).long()
    return flat[chosen], places[chosen]


def of_size(answers: Tensor, targets: Tensor, axis: int = 1) -> Tensor:
    """Answers with the classes along `axis` of as many places as the targets have, by the nearest one."""
    if answers.ndim != targets.ndim + 1:
        return answers
    resampled = answers.movedim(axis, -1)
    for dimension in range(1, targets.ndim):
        have, size = resampled.shape[dimension], targets.shape[dimension]
        if have != size:
            nearest = ((torch.arange(size, device=resampled.device) + 0.5) * have / size).long()
            resampled = resampled.index_select(dimension, nearest)
    return resampled.movedim(-1, axis)


def liked_best(loss_fn: LossFn, outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs after STEPS steps of 1 against the gradient's sign; within 0 and 1 if the loss takes no others.

    Outputs that are probabilities or their logarithms stay such.
    """
    link = link_along([outputs], 1) if outputs.ndim == 2 and outputs.shape[1] > 1 else None
    if link is not None:
        free = torch.zeros_like(outputs)
        for _ in range(STEPS):
            free = free.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_fn(link(free), targets).sum(), free)
            free = free - gradient.sign()
        return link(free).detach()

    def moved(low: float, high: float) -> Tensor:
        free = outputs.clamp(low, high)
        for _ in range(STEPS):
            free = free.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_fn(free, targets).sum(), free)
            free = (free - gradient.sign()).clamp(low, high)
        return free.detach()

    if bool(((outputs >= 0) & (outputs <= 1)).all()):
        try:
            return moved(-float("inf"), float("inf"))
        except (RuntimeError, ValueError):
            return moved(1e-6, 1 - 1e-6)
    return moved(-float("inf"), float("inf"))


def downhill(losses: Callable[[Tensor], Tensor], start: Tensor, size: float | Tensor) -> Iterator[Tensor]:
    """Free numbers after each step of Rprop from `size` on: by signs alone, so that losses with corners do.

    `size` may be one for each output, that of a step at first. A row whose loss has no finite gradient stays. Ends
    where the loss takes no such numbers, or those of the step before had a loss that is not finite.
    """
    moved = torch.zeros_like(start).requires_grad_(True)
    optimizer = torch.optim.Rprop([moved], lr=1.0, etas=(0.5, 1.2), step_sizes=(1e-9, 1e9))
    while True:
        optimizer.zero_grad()
        try:
            loss = losses(start + moved * size).sum()
        except (ProbeError, RuntimeError, ValueError):
            return
        if not bool(loss.isfinite()) or not loss.requires_grad:
            return
        loss.backward()
        if moved.grad is None:
            return
        moved.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step()
        yield (start + moved * size).detach()
