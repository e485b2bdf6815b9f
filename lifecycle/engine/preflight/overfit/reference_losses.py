"""What the loss on a few rows is held against, all by the network's own loss function.

Three losses, each the lowest that LBFGS finds: of one output for all rows (what a network reaches that does not look
at its inputs), of a line over a few directions of the inputs, and of a free output for each row, below which no
network can go: label smoothing ends above 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import Ends, all_at_ends, before, held_links, lowest_loss, probed
from trainworthy.lifecycle.engine.preflight.overfit.linear_probe import line_basis
from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import (
    Outputs,
    linked_outputs,
    start_and_changed,
)
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.output_range import reach
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import ProbeError


@dataclass(frozen=True)
class Yardsticks:
    """Mean losses on the rows. `bounded` is False if the loss of one output for all rows falls without end."""

    constant: float
    line: float
    floor: float
    bounded: bool


def loss_uses_labels(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> bool:
    """Does the loss of the same outputs change with the labels? Where all labels are equal, the claim decides.

    Asked of much changed weights, too: an output of 0 costs the same with either label.
    """
    if subject.claims.labels == "unused":
        return False
    targets = torch.cat([data.targets[rows] for rows in batches])
    if bool((targets == targets[:1]).all()):
        return True
    moved = targets[_moved(targets)].split(len(batches[0]))
    passes = start_and_changed(subject, data, batches)
    return any(not torch.equal(outputs.losses(), outputs.losses(targets=moved)) for outputs in passes)


def _moved(targets: Tensor) -> Tensor:
    """An order that gives many rows the label of another."""
    return torch.randperm(len(targets), generator=torch.Generator().manual_seed(1)).to(targets.device)


def measure_yardsticks(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> Yardsticks:
    """The three losses on the rows of the batches; of outputs that the network reaches, where others gain without end
    or are refused.
    """
    outputs = linked_outputs(subject, data, batches)
    try:
        free = _measured(outputs, data, batches)
        if free.bounded:
            return free
    except ProbeError:
        # Probabilities beside other numbers in one tensor: the loss takes what the network reaches, and no others.
        free = None
    held = _measured(outputs, data, batches, reach(subject))
    return held if held.bounded or free is None else free


def _measured(
    outputs: Outputs, data: TrainData, batches: Sequence[Tensor], ends: Mapping[int, Ends] | None = None
) -> Yardsticks:
    """Without a lowest loss of one output for all, too, if nothing but the ends holds that output."""
    whole = {place: outputs.whole(place) for place in outputs.free}
    basis = line_basis(data, outputs, batches)
    # From the network's own mean as well: zeros may be a place without a gradient, as under a clamp.
    numbers = {at: before(outputs.free[at], value) for at, value in whole.items()}
    own = {at: value.mean(0, keepdim=True) for at, value in numbers.items() if value is not None}
    if ends:
        outputs = replace(outputs, free=held_links(outputs.free, whole, ends))
    constant, further, at = _lowest(outputs, basis[:, :1], whole, own)
    best = outputs.spread(basis[:, :1], at)
    only_held = bool(ends) and all_at_ends([(best[place], bounds) for place, bounds in ends.items() if place in best])
    # Each search begins at the end of the one before too, so that more freedom never ends higher.
    line, _, at = _lowest(outputs, basis, whole, {n: _padded(value, basis.shape[1]) for n, value in at.items()})
    floor, beyond, _ = _lowest(outputs, None, whole, {n: torch.tensordot(basis, value, 1) for n, value in at.items()})
    # A likelihood has no lowest value where rows are free to be sure of themselves: the line is what is left.
    floor = line if _endless(floor, beyond) else min(floor, line)
    return Yardsticks(constant, min(line, constant), floor, bounded=not (only_held or _endless(constant, further)))


def _lowest(
    outputs: Outputs, basis: Tensor | None, whole: dict[int, Tensor], begin: dict[int, Tensor]
) -> tuple[float, float, dict[int, Tensor]]:
    """The lowest loss of outputs `basis @ parameters`, or of a parameter a row; of ten times as far; the parameters.

    Searched from near zero, and from `begin`; what this leaves out begins near zero.
    """
    size = outputs.rows if basis is None else basis.shape[1]
    near = {n: 0.1 * torch.randn(size, *value.shape[1:], device=value.device) for n, value in whole.items()}

    @probed
    def mean(parameters: dict[int, Tensor]) -> Tensor:
        return outputs.losses(outputs.spread(basis, parameters)).mean()

    starts = (near, near | begin)
    lowest, at, start = min(((*lowest_loss(point, mean), point) for point in starts), key=lambda search: search[0])
    with torch.no_grad():
        return lowest, float(mean({n: start[n] + 10 * (at[n] - start[n]) for n in start})), at


def _padded(value: Tensor, rows: int) -> Tensor:
    """The same first rows, and zeros below."""
    return torch.cat([value, value.new_zeros(rows - len(value), *value.shape[1:])])


def _endless(lowest: float, further: float) -> bool:
    """Does the loss fall on, far beyond where it was found lowest?"""
    return lowest == float("-inf") or further < lowest - max(1.0, abs(lowest))
