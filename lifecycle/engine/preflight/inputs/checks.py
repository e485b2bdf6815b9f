"""What enters the network: finite, varying, of a size to train on; labels, order, preprocessing and augmentation.

This file looks at the tensors alone; the family's other checks lie in the files that it imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs import (
    alike,
    augmentation,
    batches,
    channels,
    first_layer,
    label_scale,
    labels,
    pairs,
)
from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import MOST_ROWS, row_losses, rows_of, step_generator
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

# Rows that must differ for "all rows are equal" to mean anything.
FEWEST_ROWS = 8
# Of a column's own size: float32 keeps seven digits, and noise of the last one is no information.
CONSTANT = 1e-6
AUGMENTED_STEPS = 4


def finite(subject: Subject) -> Outcome:
    """NaN and infinity by tensor; those that the network takes with finite loss and gradients are declared so."""
    faults, bad = [], torch.zeros(0, dtype=torch.long)
    for part, data in (("training", subject.training), ("held-out", subject.held_out)):
        for name, tensor in _floating(data):
            # Infinities in a mask of 0 and -inf are what attention adds to its scores.
            wrong = ~tensor.isfinite() if not _additive_mask(tensor) else torch.zeros_like(tensor, dtype=torch.bool)
            if bool(wrong.any()):
                rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().cpu()
                faults.append(f"{name}: {int(wrong.sum())} values in {len(rows)} {part} rows")
                bad = rows if part == "training" and not len(bad) else bad
    if not faults:
        return _augmented_finite(subject)
    evidence = "not finite in " + "; ".join(faults)
    harm = _harm(subject, bad) if len(bad) else "only held-out rows hold them, and training has none to learn from"
    if harm:
        return Outcome("fail", f"{evidence}; {harm}", len(faults), 0)
    infinite = any(bool(tensor.isinf().any()) for _, tensor in _floating(subject.training))
    taken = f"{evidence}; the network takes these rows with finite loss and gradients"
    return Outcome("insufficient" if infinite else "pass", taken, len(faults), 0)


def _floating(data: TrainData) -> Iterator[tuple[str, Tensor]]:
    tensors = {**{f"input {name}": tensor for name, tensor in data.inputs.items()}, "targets": data.targets}
    if data.weights is not None:
        tensors["weights"] = data.weights
    yield from ((name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point())


def _additive_mask(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == float("-inf"))).all())


def _harm(subject: Subject, bad: Tensor) -> str:
    """What the rows do to loss or gradients, "" if nothing: a network may replace NaN itself."""
    rows = torch.cat([bad[: MOST_ROWS // 2], spread_rows(subject.training, MOST_ROWS // 2)])
    model = subject.model().train()
    _, losses = row_losses(subject, model, *rows_of(subject.training, rows, subject.device))
    if subject.training.weights is not None:
        losses = losses * subject.training.weights[rows.to(subject.training.targets.device)]
    if not bool(losses.isfinite().all()):
        return "their loss is not finite"
    losses.mean().backward()
    broken = [
        n for n, p in model.named_parameters() if p.grad is not None and not bool(p.grad.to_dense().isfinite().all())
    ]
    return f"the gradient of {broken[0]} is not finite" if broken else ""


def _augmented_finite(subject: Subject) -> Outcome:
    """The first steps' augmentation must not make values that are not finite, such as a noise divided by zero."""
    augment = subject.recipe.augment
    for step in range(AUGMENTED_STEPS if augment else 0):
        assert augment is not None
        rows = spread_rows(subject.training, MOST_ROWS)
        inputs, targets = augment(*rows_of(subject.training, rows, subject.device), step_generator(subject, step))
        for name, tensor in _floating(TrainData(inputs, targets)):
            if not bool(tensor.isfinite().all()) and not _additive_mask(tensor):
                count = int((~tensor.isfinite()).sum())
                evidence = f"{name}: {count} values are not finite after augmentation in step {step}"
                return Outcome("fail", evidence, 1, 0, fix="correct augment: it makes these values of finite ones")
    names = [name for data in (subject.training, subject.held_out) for name, _ in _floating(data)]
    return Outcome("pass", f"all values of {len(names)} tensors are finite", 0, 0)


def constant(subject: Subject) -> Outcome:
    """Inputs that are equal in every row. Masks and positions may be, and so may single columns."""
    inputs = subject.training.valued
    if len(subject.training.targets) < FEWEST_ROWS:
        return Outcome("insufficient", f"{len(subject.training.targets)} rows say nothing about what varies")
    varying = {name: _varying(tensor) for name, tensor in inputs.items()}
    dead = [name for name, columns in varying.items() if not bool(columns.any())]
    still = {name: int((~columns).sum()) for name, columns in varying.items() if not bool(columns.all())}
    harmful = [name for name in dead if len(dead) == len(inputs) or not _may_be_constant(name, inputs, dead)]
    if harmful:
        shown = "; ".join(f"{name} is {_example(inputs[name])} in every row" for name in harmful)
        return Outcome("fail", f"{len(harmful)} of {len(inputs)} inputs do not vary: {shown}", len(harmful), 0)
    noted = ", ".join(f"{name}: {count} of {varying[name].numel()}" for name, count in still.items())
    return Outcome(
        "pass", f"every input varies; columns that do not: {noted}" if noted else "every column varies", 0, 0
    )


def _varying(tensor: Tensor) -> Tensor:
    """Which columns vary over the rows beyond rounding, shape (columns,)."""
    flat = tensor.reshape(len(tensor), -1)
    if not flat.is_floating_point():
        return (flat != flat[:1]).any(dim=0)
    flat = flat.nan_to_num(0.0, 0.0, 0.0)
    low, high = flat.amin(dim=0), flat.amax(dim=0)
    return (high - low) > CONSTANT * low.abs().maximum(high.abs())


def _may_be_constant(name: str, inputs: dict[str, Tensor], dead: list[str]) -> bool:
    """Whole numbers (positions, types of tokens) and masks; a float tensor of zeros only as the mask of another input.

    A mask of missing values is all zeros where none is missing; inputs that were zeroed by mistake look the same, and
    differ in having no values of their own beside them.
    """
    tensor = inputs[name]
    if not tensor.is_floating_point() or bool((tensor == 1).all()):
        return True
    if not bool(((tensor == 0) | (tensor == 1)).all()):
        return False
    float_inputs = [other for key, other in inputs.items() if key not in dead and other.is_floating_point()]
    masked = [other for other in float_inputs if other.shape == tensor.shape and not _binary(other)]
    return bool(masked) or 2 * tensor[0].numel() < sum(other[0].numel() for other in float_inputs)


def _binary(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == 1)).all())


def _example(tensor: Tensor) -> str:
    """What is in every row: zeros, or so many values, which are not told, since they are a row's own."""
    return "0" if bool((tensor[0] == 0).all()) else f"the same {_values(tensor[0].numel())}"


def _values(count: int) -> str:
    return "value" if count == 1 else f"{count} values"


CHECKS: tuple[Check[Any], ...] = (
    check_of("inputs.finite", finite),
    check_of("inputs.constant", constant),
    *first_layer.CHECKS,
    *channels.CHECKS,
    *labels.CHECKS,
    *label_scale.CHECKS,
    *batches.CHECKS,
    *alike.CHECKS,
    *augmentation.CHECKS,
    *pairs.CHECKS,
)
