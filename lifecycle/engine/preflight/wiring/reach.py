"""Do labels reach the loss, and inputs the output? By changing them.

Are the later positions of a sequence looked at: of the targets by the loss, of an input by the network?

A loss of the first position alone trains, and an output that is read at the first step has seen one step. All later
positions are changed at once; they must have an effect together. The first ones may have none: a loss may leave them
out until a state has settled, and a short memory forgets them. Padding is told by being equal in all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.pytree import flat
from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.columns import unread_columns
from trainworthy.lifecycle.engine.preflight.wiring.one_answer import one_answer
from trainworthy.lifecycle.engine.preflight.wiring.passes import (
    FEW_ROWS,
    few,
    floats,
    forward,
    has_effect,
    largest,
    losses,
    other_rows,
    stirred,
)
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome

# Rows among which another label, or another value, is looked for.
SEARCHED = 20_000
# Columns of targets that are few enough to be told apart, and rows in which a column is changed.
MOST_COLUMNS, CHANGED_ROWS = 16, 64


def uses_labels(subject: Subject) -> Outcome:
    """Every row gets a label that differs from its own; loss and gradient must change."""
    if subject.claims.labels == "unused":
        return Outcome("not_applicable", "declared: the loss needs no labels")
    data = few(subject)
    changed = _other_targets(few(subject, SEARCHED).targets, data.targets)
    if changed is None:
        return Outcome("insufficient", "all labels of the sample are equal, so that none can be changed", required=True)
    model = stirred(subject.model()).train(subject.batch_rows() > 1)
    loss, gradient = _loss_and_gradient(subject, model, data)
    other_loss, other_gradient = _loss_and_gradient(subject, model, TrainData(data.inputs, changed))
    if not all(bool(tensor.isfinite().all()) for tensor in (loss, gradient, other_loss, other_gradient)):
        return Outcome("insufficient", "loss or gradient is not finite, so that nothing can be compared", required=True)
    by_loss, by_gradient = largest(other_loss - loss), largest(other_gradient - gradient)
    evidence = f"other labels change {len(loss)} rows' losses by up to {by_loss:.2g}, the gradient by {by_gradient:.2g}"
    if by_loss > 0 and by_gradient == 0 and gradient.any() and _pull_between(subject, model, data, changed):
        return Outcome("pass", f"{evidence}, and that of outputs between them: the labels lie on one side of the "
                       "outputs",
                       by_gradient)  # fmt: skip
    if by_loss > 0 and by_gradient > 0:
        idle = _without_effect(subject, model) or later_labels(subject, model)
        return idle or Outcome("pass", evidence, by_gradient)
    cause = (
        "the labels change the loss's value only: what they meet is detached from the network" if by_loss > 0 else ""
    )
    why = None if gradient.any() else one_answer(subject)
    return why or Outcome("fail", evidence, by_gradient, 0.0, cause=cause)


def _pull_between(subject: Subject, model: nn.Module, data: TrainData, changed: Tensor) -> bool:
    """Do labels pull at outputs that lie between them? An absolute error pulls alike at all that lie on one side."""
    with torch.no_grad():
        outputs = forward(model.eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not data.targets.is_floating_point():
        return False
    middle = float((data.targets.float() + changed.float()).mean()) / 2
    pulls = []
    for targets in (data.targets, changed):
        moved = (outputs.float() - outputs.float().mean() + middle).requires_grad_(True)
        loss = subject.recipe.loss_fn(moved, targets).sum()
        pulls.append(torch.autograd.grad(loss, moved)[0] if loss.requires_grad else torch.zeros_like(moved))
    return not torch.equal(*pulls)


def _without_effect(subject: Subject, model: nn.Module) -> Outcome | None:
    """A warning for columns of targets (N, K) that change no row's loss, each tried alone; None if all do.

    Positions of a sequence are no columns: a loss may leave out the first ones, until a state has settled.
    """
    data, known = few(subject, CHANGED_ROWS), few(subject, SEARCHED).targets
    columns = data.targets.shape[1] if data.targets.ndim == 2 else 0
    if not 1 < columns <= MOST_COLUMNS or any(tensor.shape[1:2] == (columns,) for tensor in data.inputs.values()):
        return None
    plain, idle = losses(model, data, subject.recipe.loss_fn).losses, []
    for column in range(columns):
        other = _other_targets(known[:, column], data.targets[:, column])
        if other is None:
            continue
        changed = data.targets.clone()
        changed[:, column] = other
        with torch.no_grad():
            row_losses = losses(model, TrainData(data.inputs, changed), subject.recipe.loss_fn).losses
        if row_losses.equal(plain):
            idle.append(column)
    if not idle:
        return None
    evidence = f"columns {idle} of {columns} of the targets change no row's loss"
    cause, fix = (
        "the loss leaves these columns out",
        "compare each column with its output, or leave it out of the labels",
    )
    return Outcome("fail", evidence, len(idle), 0, cause=cause, fix=fix, severity="warning")


def _other_targets(known: Tensor, targets: Tensor) -> Tensor | None:
    """For each row a target of the sample that is not its own; None if all are equal."""
    differing = (known != targets[0]).flatten(1).any(1) if known.ndim > 1 else known != targets[0]
    if not differing.any():
        return None
    donor = known[int(differing.int().argmax())]
    equal = (targets == donor).flatten(1).all(1) if targets.ndim > 1 else targets == donor
    return targets[:1].where(equal.reshape(-1, *[1] * (targets.ndim - 1)), donor)


def _loss_and_gradient(subject: Subject, model: nn.Module, data: TrainData) -> tuple[Tensor, Tensor]:
    """Each row's loss and the gradient of their mean over all parameters; no gradient: zeros."""
    model.zero_grad(set_to_none=True)
    row_losses = losses(model, data, subject.recipe.loss_fn).losses
    if row_losses.requires_grad:
        row_losses.mean().backward()
    parts = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return row_losses.detach(), torch.cat([flat(part) for part in parts]).float() if parts else torch.zeros(1)


def uses_inputs(subject: Subject) -> Outcome:
    """Each input in turn gets the values of other rows; the output must change. One of several that has no effect
    is only told."""
    model, data = stirred(subject.model()), few(subject)
    with torch.no_grad():
        if not floats(forward(model.eval(), data.inputs)):
            evidence = "no number is seen in the outputs: they are of a class that torch does not look into"
            fix = "give a tensor, tuple, dict or NamedTuple, or register the class: torch.export.register_dataclass"
            return Outcome("insufficient", evidence, required=True, cause="outputs in a class of their own", fix=fix)
    without, constant = [], []
    for name in data.valued:
        changed = _other_values(subject, data, name)
        if changed is None:
            constant.append(name)
        elif not has_effect(subject, model, data, {name: changed}):
            without.append(name)
    tried = [name for name in data.valued if name not in constant]
    noted = f"; {', '.join(constant)}: equal in all rows, not tried" if constant else ""
    if not tried:
        return Outcome(
            "insufficient", f"inputs are equal in all rows of the sample: {', '.join(constant)}", required=True
        )
    if not without:
        passed = Outcome("pass", f"outputs change with {', '.join(tried)}{noted}")
        return later_values(subject, model, tried) or unread_columns(subject, tried) or passed
    evidence = f"outputs stay the same, whatever the values of {', '.join(without)}{noted}"
    if len(without) == len(tried):
        return one_answer(subject) or Outcome("fail", evidence, len(without), 0)
    return Outcome("fail", evidence, len(without), 0, severity="warning", cause="this input is not used in forward")


def _other_values(subject: Subject, data: TrainData, name: str) -> Tensor | None:
    """Values of other rows; for a floating input that is constant, noise; None for any other constant one."""
    own, known = data.inputs[name], few(subject, SEARCHED).inputs[name]
    changed = other_rows(subject, len(own)).inputs[name]
    if not changed.equal(own):
        return changed
    differing = (known != own[:1]).reshape(len(known), -1).any(1)
    if differing.any():
        return known[int(differing.int().argmax())].expand_as(own).clone()
    if own.is_floating_point():
        noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(0))
        return own + noise.to(own.device, own.dtype) * (1 + largest(own))
    return None


# Rows that are changed, so that some are long where lengths differ; positions that are enough to tell.
ROWS, FEWEST = 64, 4
# Of the positions, the first ones, which are not changed: a network that cuts a quarter off an input makes a choice.
LABELS_FROM, INPUTS_FROM = 0.5, 0.25
# What a network or a loss says that takes no rows made of two, as of a graph's edges.
REFUSES = (RuntimeError, ValueError, IndexError, AssertionError)


def later_labels(subject: Subject, model: nn.Module) -> Outcome | None:
    """A warning if no row's loss changes with other targets in the second half of the positions (N, T, ...)."""
    if not all(_idle_labels(subject, model, rows) for rows in (FEW_ROWS, ROWS)):
        return None
    length = few(subject).targets.shape[1]
    first = _first(length, LABELS_FROM)
    evidence = f"targets in the positions from {first} on, of {length}, change no row's loss"
    cause, fix = "the loss looks at the first positions alone", "take the mean of the loss over all positions"
    return Outcome("fail", evidence, first, length, cause, fix, severity="warning")


def _idle_labels(subject: Subject, model: nn.Module, rows: int) -> bool:
    data, row_losses = few(subject, rows), []
    changed = _changed(data.targets, other_rows(subject, len(data.targets)).targets, 1, LABELS_FROM)
    if changed is None:
        return False
    try:
        with torch.no_grad():
            outputs = forward(model, data.inputs)
            for targets in (data.targets, data.targets, changed):
                with same_random_numbers():
                    row_losses.append(subject.recipe.loss_fn(outputs, targets))
    except REFUSES:
        return False
    return all(loss.equal(row_losses[0]) for loss in row_losses)


def later_values(subject: Subject, model: nn.Module, names: list[str]) -> Outcome | None:
    """A warning if no output changes with the last three quarters of an input's positions, along one of its axes.

    Columns of a table (N, F) are none.
    """
    data = few(subject)
    for name in names:
        for axis in _axes(data.inputs[name]):
            if all(_idle_values(subject, model, name, axis, rows) for rows in (FEW_ROWS, ROWS)):
                length = data.inputs[name].shape[axis]
                first = _first(length, INPUTS_FROM)
                evidence = f"outputs stay the same, whatever {name} holds from place {first} on, of {length}"
                evidence += f" (dimension {axis})"
                cause = "the answer is taken where only the first places have been seen, as at a sequence's first step"
                fix = "read the last state, or the mean over all; cut the input in to_tensors if so much is meant"
                return Outcome("fail", evidence, first, length, cause, fix, severity="warning")
    return None


def _axes(values: Tensor) -> range:
    """Those that may be positions: of whole numbers (N, T) the second one."""
    return range(1 if values.ndim > 2 or not values.is_floating_point() else 2, values.ndim)


def _idle_values(subject: Subject, model: nn.Module, name: str, axis: int, rows: int) -> bool:
    data = few(subject, rows)
    changed = _changed(data.inputs[name], other_rows(subject, len(data.targets)).inputs[name], axis, INPUTS_FROM)
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
