"""Are the later positions of a sequence looked at: of the targets by the loss, of an input by the network?

A loss of the first position alone trains, and an output that is read at the first step has seen one step. All later
positions are changed at once; they must have an effect together. The first ones may have none: a loss may leave them
out until a state has settled, and a short memory forgets them. Padding is told by being equal in all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS, few, forward, has_effect, others
from trainworthy.lifecycle.gates.check import Found

# Rows that are changed, so that some are long where lengths differ; positions that are enough to tell.
ROWS, FEWEST = 64, 4
# Of the positions, the first ones, which are not changed: a network that cuts a quarter off an input makes a choice.
LABELS_FROM, INPUTS_FROM = 0.5, 0.25
# What a network or a loss says that takes no rows made of two, as of a graph's edges.
REFUSES = (RuntimeError, ValueError, IndexError, AssertionError)


def later_labels(subject: Subject, model: nn.Module) -> Found | None:
    """A warning if no row's loss changes with other targets in the second half of the positions (N, T, ...)."""
    if not all(_idle_labels(subject, model, rows) for rows in (FEW_ROWS, ROWS)):
        return None
    length = few(subject).targets.shape[1]
    first = _first(length, LABELS_FROM)
    told = f"targets in the positions from {first} on, of {length}, change no row's loss"
    cause, fix = "the loss looks at the first positions alone", "take the mean of the loss over all positions"
    return Found("fail", told, first, length, cause, fix, severity="warning")


def _idle_labels(subject: Subject, model: nn.Module, rows: int) -> bool:
    data, found = few(subject, rows), []
    changed = _changed(data.targets, others(subject, len(data.targets)).targets, 1, LABELS_FROM)
    if changed is None:
        return False
    try:
        with torch.no_grad():
            outputs = forward(model, data.inputs)
            for targets in (data.targets, data.targets, changed):
                with same_random_numbers():
                    found.append(subject.recipe.loss_fn(outputs, targets))
    except REFUSES:
        return False
    return all(one.equal(found[0]) for one in found)


def later_values(subject: Subject, model: nn.Module, names: list[str]) -> Found | None:
    """A warning if no output changes with the last three quarters of an input's positions, along one of its axes.

    Columns of a table (N, F) are none.
    """
    data = few(subject)
    for name in names:
        for axis in _axes(data.inputs[name]):
            if all(_idle_values(subject, model, name, axis, rows) for rows in (FEW_ROWS, ROWS)):
                length = data.inputs[name].shape[axis]
                first = _first(length, INPUTS_FROM)
                told = f"outputs stay the same, whatever {name} holds from place {first} on, of {length}"
                told += f" (dimension {axis})"
                cause = "the answer is taken where only the first places have been seen, as at a sequence's first step"
                fix = "read the last state, or the mean over all; cut the input in to_tensors if so much is meant"
                return Found("fail", told, first, length, cause, fix, severity="warning")
    return None


def _axes(values: Tensor) -> range:
    """Those that may be positions: of whole numbers (N, T) the second one."""
    return range(1 if values.ndim > 2 or not values.is_floating_point() else 2, values.ndim)


def _idle_values(subject: Subject, model: nn.Module, name: str, axis: int, rows: int) -> bool:
    data = few(subject, rows)
    changed = _changed(data.inputs[name], others(subject, len(data.targets)).inputs[name], axis, INPUTS_FROM)
    try:
        return changed is not None and not has_effect(subject, model, data, {name: changed})
    except REFUSES:
        return False


def _changed(own: Tensor, other: Tensor, axis: int, share: float) -> Tensor | None:
    """The values with those of other rows from there on; None if there is nothing to change: few positions, padding."""
    if own.ndim <= axis or own.shape[axis] < FEWEST or other.shape != own.shape:
        return None
    first = _first(own.shape[axis], share)
    later = own.narrow(axis, first, own.shape[axis] - first)
    if bool((later == later[:1]).all()):
        return None
    changed = own.clone()
    changed.narrow(axis, first, own.shape[axis] - first).copy_(other.narrow(axis, first, own.shape[axis] - first))
    return None if changed.equal(own) else changed


def _first(length: int, share: float) -> int:
    return -int(-length * share // 1)
