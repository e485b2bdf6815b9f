"""What the loss on a few rows is held against, all by the network's own loss function.

Three losses, each the lowest that LBFGS finds: of one output for all rows (what a network reaches that does not look
at its inputs), of a line over a few directions of the inputs, and of a free output for each row, below which no
network can go: label smoothing ends above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lifecycle.preflight.free_outputs import lowest_loss
from lifecycle.preflight.overfit.line import line_basis
from lifecycle.preflight.overfit.replaced import linked_outputs, network_outputs, start_and_changed
from lifecycle.preflight.subject import Subject
from lifecycle.training.loop import TrainData

if TYPE_CHECKING:
    from torch import Tensor


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
    import torch

    if subject.claims.labels == "unused":
        return False
    targets = torch.cat([data.targets[rows] for rows in batches])
    if bool((targets == targets[:1]).all()):
        return True
    moved = targets[_moved(targets)].split(len(batches[0]))
    seen = start_and_changed(subject, data, batches)
    return any(not torch.equal(outputs.losses(), outputs.losses(targets=moved)) for outputs in seen)


def _moved(targets: Tensor) -> Tensor:
    """An order that gives many rows the label of another."""
    import torch

    return torch.randperm(len(targets), generator=torch.Generator().manual_seed(1)).to(targets.device)


def measure_yardsticks(
    subject: Subject, data: TrainData, batches: Sequence[Tensor], linked: TrainData | None = None
) -> Yardsticks:
    """The three losses on the rows of the batches.

    What outputs keep to is judged on `linked`, where the inputs of `data` are all alike: equal outputs tell no range.
    """
    import torch

    outputs = linked_outputs(subject, linked or data, batches)
    if linked:
        outputs = replace(network_outputs(subject, subject.model().eval(), data, batches), free=outputs.free)
    whole = {place: outputs.whole(place) for place in outputs.free}

    def lowest(basis: Tensor | None) -> tuple[float, float]:
        """The lowest loss of outputs `basis @ parameters`, or of a parameter a row; and of ten times as far."""
        size = outputs.rows if basis is None else basis.shape[1]
        start = {n: 0.1 * torch.randn(size, *value.shape[1:], device=value.device) for n, value in whole.items()}

        def mean(parameters: dict[int, Tensor]) -> Tensor:
            return outputs.losses(outputs.spread(basis, parameters)).mean()

        found, at = lowest_loss(start, mean)
        with torch.no_grad():
            return found, float(mean({n: start[n] + 10 * (at[n] - start[n]) for n in start}))

    basis = line_basis(data, outputs, batches)
    constant, further = lowest(basis[:, :1])
    line = min(lowest(basis)[0], constant)
    floor, beyond = lowest(None)
    # A likelihood has no lowest value where rows are free to be sure of themselves: the line is what is left.
    floor = line if _endless(floor, beyond) else min(floor, line)
    return Yardsticks(constant, line, floor, bounded=not _endless(constant, further))


def _endless(lowest: float, further: float) -> bool:
    """Does the loss fall on, far beyond where it was found lowest?"""
    return lowest == float("-inf") or further < lowest - max(1.0, abs(lowest))
