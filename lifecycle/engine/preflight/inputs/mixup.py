"""Does augmentation mix rows, and their targets with them?"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs.augmentation import augmented
from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import rows_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows

ROWS, STEPS = 16, 6
# More of another row than of its own is another row; less than a fiftieth is the batch's mean or its extremes.
OWN_SHARE, SOME_SHARE = 0.5, 0.02


def mixed_without_targets(subject: Subject) -> str:
    """Rows whose inputs are mostly another row's, while their targets depend on no other row."""

    data, rows = subject.training, spread_rows(subject.training, ROWS)
    name = next((n for n, t in data.valued.items() if t.is_floating_point() and t.ndim > 1), None)
    if name is None or len(rows) < 2 or not (data.targets[rows.to(data.targets.device)].unique().numel() > 1):
        return ""
    for step in range(STEPS):
        moved = _moved_by_another(subject, rows, name, step)
        shares, targets_move = moved
        if float(shares.max()) > OWN_SHARE and not targets_move:
            row = int(shares.argmax())
            share = f"{float(shares.max()):.0%}"
            return f"in step {step} row {row} of {name} is made of other rows by {share}, and keeps its own target"
        if targets_move:
            return ""
    return ""


def _moved_by_another(subject: Subject, rows: Tensor, name: str, step: int) -> tuple[Tensor, bool]:
    """How much of each row of an input comes from other rows, and whether any target does.

    Half of the rows are raised by their deviation: what rises in the other half came from them.
    """
    inputs, targets = rows_of(subject.training, rows, subject.device)
    size = inputs[name].float().nan_to_num(0.0, 0.0, 0.0).std().clamp_min(1e-6).to(inputs[name].dtype)
    shares = torch.zeros(len(rows))
    moved = False
    generator = torch.Generator().manual_seed(step)
    raised = torch.rand(len(rows), generator=generator) < 0.5
    raised[0], raised[-1] = True, False
    up = raised.to(targets.device)
    results = []
    for change in (False, True):
        given = {key: tensor.clone() for key, tensor in inputs.items()}
        given_targets = targets.clone()
        if change:
            given[name][up] = given[name][up] + size
            # Each raised row gets another's target, so that only real labels are sent.
            given_targets[up] = other_targets(targets)[up]
        results.append(augmented(subject, given, given_targets, step))
    (before, targets_before), (after, targets_after) = results
    if before[name].shape != after[name].shape or len(before[name]) != len(rows):
        return shares, True
    rise = ((after[name] - before[name]).float().flatten(1).mean(dim=1) / size.float()).abs().cpu()
    shares = torch.where(raised, shares, rise)
    moved = bool((targets_before[~up] != targets_after[~up]).any())
    return shares, moved


def other_targets(targets: Tensor) -> Tensor:
    """Each row's target replaced by a different one that is there, as far as there is one."""
    flat = targets.reshape(len(targets), -1)
    low, high = flat[flat.float().sum(dim=1).argmin()], flat[flat.float().sum(dim=1).argmax()]
    is_low = (flat == low).all(dim=1, keepdim=True)
    return torch.where(is_low, high, low).reshape(targets.shape)


def mixes_rows(subject: Subject, name: str) -> bool:
    """Whether the augmentation mixes rows, so that soft labels are meant."""
    rows = spread_rows(subject.training, ROWS)
    return any(float(_moved_by_another(subject, rows, name, step)[0].max()) > SOME_SHARE for step in range(STEPS))
