"""Which columns of an input does no output depend on?

Columns lie along the shortest axis beside that of the rows: a table's, a sequence's channels, a picture's. A gradient
at one tells that it is read, or a row's outputs that move with it. The others get their column's largest or least value
in all rows at once, and count only if no output moves in any look at stirred weights: gates open elsewhere, attention
that skips places falls on others, and rows whose place is masked stand beside rows whose is not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import (
    augmented,
    few,
    floats,
    forward,
    has_effect,
    stirred,
)
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome

UNREAD = "columns_unread"
# Rows in which a column is changed, and those among which its values are looked for.
ROWS, SEARCHED = 64, 20_000
# Share of stirring and seed of each look at a column that nothing has moved so far; a gate that noise shuts, the
# opposite noise opens.
LOOKS = ((0.1, 0), (2.0, 1), (-2.0, 1), (2.0, 2), (-2.0, 2))
# Whole numbers have no gradient, so that each of their columns is tried; more of them are positions of a text.
MOST_WHOLE = 64
# Groups of columns that are tried for one input: each takes some passes. Beyond them nothing is said.
MOST_TRIED = 256
REFUSES = (RuntimeError, ValueError, IndexError, AssertionError)


def unread_columns(subject: Subject, names: list[str]) -> Outcome | None:
    """A warning for the columns of the first input that has some; None if all are read."""
    for name in names:
        # As augmentation leaves them: what it sets to one value is constant for the network.
        values = few(subject, SEARCHED).inputs[name]
        if values.ndim < 2 or values.dtype == torch.bool:
            continue
        axis = min(range(1, values.ndim), key=lambda dim: values.shape[dim])
        try:
            unread = _unread(subject, name, axis, values)
        except REFUSES:
            # A network may take no value but those that rows have together, as a graph's edges.
            continue
        if unread:
            evidence = f"no output depends on {_shown(unread, values.shape[axis])} of {name}"
            cause = "forward takes a part of the input: a slice, a width that is too small, or a layer on part of it"
            fix = f"let forward read all of {name}, or leave these columns out in to_tensors"
            return Outcome("fail", evidence, len(unread), 0, cause, fix, severity="warning", code=UNREAD)
    return None


def _unread(subject: Subject, name: str, axis: int, values: Tensor) -> list[int]:
    count = values.shape[axis]
    flat = values.movedim(axis, 0).reshape(count, -1)
    low, high = (end.to(subject.device) for end in (flat.amin(1), flat.amax(1)))
    suspects = [int(column) for column in (low != high).nonzero()]
    if len(suspects) < 2 or (not values.is_floating_point() and count > MOST_WHOLE):
        return []
    if values.is_floating_point():
        pulled = _pulled(subject, name, axis)
        suspects = [column for column in suspects if not bool(pulled[column])]
    if not suspects:
        return []
    data = subject.training.take(_rows(subject, flat, suspects))
    behind = [1] * (values.ndim - axis - 1)
    low, high = low.reshape(-1, *behind), high.reshape(-1, *behind)

    def with_other(chosen: Tensor) -> tuple[TrainData, dict[str, Tensor]]:
        """The rows, and their inputs with the column's other end where it is chosen."""
        own = data.inputs[name]
        changed = torch.where(chosen, torch.where(own == high, low, high), own)
        after = augmented(subject, TrainData({**data.inputs, name: changed}, data.targets, data.weights))
        return augmented(subject, data), after.inputs

    def moves(columns: list[int], look: int) -> bool:
        chosen = torch.zeros(count, dtype=torch.bool, device=subject.device)
        chosen[columns] = True
        return has_effect(subject, stirred(subject.model(), *LOOKS[look]), *with_other(chosen.reshape(-1, *behind)))

    rows = torch.arange(len(data.targets), device=subject.device)
    own_column = torch.zeros(len(rows), count, dtype=torch.bool, device=subject.device)
    own_column[rows, torch.tensor(suspects, device=subject.device)[rows % len(suspects)]] = True
    own_column = own_column.reshape(len(rows), *[1] * (axis - 1), count, *behind)
    moved = _moved_rows(stirred(subject.model()).eval(), *with_other(own_column))
    suspects = [column for n, column in enumerate(suspects) if not bool(moved[n :: len(suspects)].any())]
    for look in range(len(LOOKS)):
        if suspects:
            suspects = _unmoved(suspects, lambda columns, look=look: moves(columns, look))
    return suspects


def _moved_rows(model: nn.Module, data: TrainData, changed: dict[str, Tensor]) -> Tensor:
    """Which rows' outputs differ between two passes. Of a network that mixes its rows all may."""
    moved = torch.zeros(len(data.targets), dtype=torch.bool, device=data.targets.device)
    with torch.no_grad():
        before, after = floats(forward(model, data.inputs)), floats(forward(model, changed))
    for output, other in zip(before, after, strict=True):
        if output.ndim and output.shape == other.shape and len(output) == len(moved):
            moved |= (output != other).flatten(1).any(1) if output.ndim > 1 else output != other
    return moved


def _unmoved(columns: list[int], moves: Callable[[list[int]], bool]) -> list[int]:
    """Those that move nothing, by halves; of more groups than MOST_TRIED, those that were come to."""
    waiting, unmoved, tried = [columns], [], 0
    while waiting and tried < MOST_TRIED:
        group, tried = waiting.pop(), tried + 1
        if not moves(group):
            unmoved += group
        elif len(group) > 1:
            waiting += [group[len(group) // 2 :], group[: len(group) // 2]]
    return sorted(unmoved)


def _pulled(subject: Subject, name: str, axis: int) -> Tensor:
    """Which columns some output has a gradient at, by one look in evaluation mode."""
    data = subject.training.take(spread_rows(subject.training, ROWS).to(subject.device))
    leaf = data.inputs[name].clone().requires_grad_()
    given = augmented(subject, TrainData({**data.inputs, name: leaf}, data.targets, data.weights))
    pulled = torch.zeros(leaf.shape[axis], dtype=torch.bool, device=leaf.device)
    outputs = [
        output for output in floats(forward(stirred(subject.model()).eval(), given.inputs)) if output.requires_grad
    ]
    generator = torch.Generator().manual_seed(0)
    weighted = [(output * (0.5 + torch.rand(output.shape, generator=generator)).to(output)).sum() for output in outputs]
    try:
        (gradient,) = torch.autograd.grad(sum(weighted, leaf.new_zeros(())), leaf, allow_unused=True)
    except RuntimeError:
        # Reentrant checkpoints give no gradient of inputs, and an augmentation may work without one.
        return pulled
    return pulled if gradient is None else (gradient != 0).movedim(axis, 0).flatten(1).any(1)


def _rows(subject: Subject, flat: Tensor, suspects: list[int]) -> Tensor:
    """Evenly spread rows, and of each suspect column one that has another value than most: places may be padding."""
    places = flat[suspects[:ROWS]]
    searched = min(SEARCHED, len(subject.training.targets))
    unusual = (places != places.mode(1, keepdim=True).values).int().argmax(1) * searched // places.shape[1]
    return torch.cat([spread_rows(subject.training, ROWS).to(subject.device), unusual.to(subject.device)]).unique()


def _shown(columns: list[int], count: int) -> str:
    """`columns 0, 3 and 6 to 11 of 12`."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and column == runs[-1][-1] + 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    shown = ", ".join(parts[:6]) + (f" and {len(parts) - 6} more ranges" if len(parts) > 6 else "")
    return f"column{'s' * (len(columns) > 1)} {shown} of {count}"
