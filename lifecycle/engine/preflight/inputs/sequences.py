"""Do sequences of whole numbers keep their targets, position by position? Tokens carry their positions instead."""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs.augmentation import augmented
from trainworthy.lifecycle.engine.preflight.inputs.mixing import ROWS, STEPS
from trainworthy.lifecycle.engine.preflight.inputs.probe import rows_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Found

# Of the rows that may be off, and of a row's positions that must fit: tokens may be replaced by others as noise.
MOST_APART, POSITIONS = 0.1, 0.5


def sequences_together(subject: Subject, name: str) -> Found:
    """Positions as tokens: wherever a token goes, its target has to go along."""
    data = subject.training
    tokens, targets = data.inputs[name], data.targets
    offset = _offset(tokens, targets)
    if offset is None:
        return Found("not_applicable", "the targets are no shifted inputs, so that no position can be followed")
    top = max(2, int(tokens.max()))
    wrong = seen = 0
    for step in range(STEPS):
        rows = spread_rows(data, ROWS)
        inputs, wanted = rows_of(data, rows, subject.device)
        position = torch.arange(tokens.shape[1], device=wanted.device).expand(len(rows), -1)
        inputs[name] = (position % top + 1).to(tokens.dtype)
        wanted = ((position + offset) % top + 1).to(targets.dtype)
        changed, changed_targets = augmented(subject, inputs, wanted, step)
        if changed[name].shape != changed_targets.shape:
            return Found("fail", f"in step {step} inputs have {tuple(changed[name].shape)}, targets "
                         f"{tuple(changed_targets.shape)}")  # fmt: skip
        valid = changed_targets > 0
        fits = (changed[name].long() - 1 + offset) % top == (changed_targets.long() - 1) % top
        seen += len(rows)
        share = (fits & valid).sum(dim=1) / valid.sum(dim=1).clamp_min(1)
        wrong += int((share < POSITIONS).sum())
    if wrong > MOST_APART * seen:
        told = f"{wrong} of {seen} rows: targets are no longer the inputs shifted by {offset}"
        return Found("fail", told, wrong / seen, MOST_APART)
    return Found("pass", f"targets stay the inputs shifted by {offset}", wrong / seen, MOST_APART)


def _offset(tokens: Tensor, targets: Tensor) -> int | None:
    """By how many positions targets are the inputs, read ahead; None if they are not."""
    if tokens.shape != targets.shape or tokens.ndim != 2:
        return None
    x, y = tokens[:256].long(), targets[:256].long()
    shares = {}
    for offset in (1, 0, 2, -1):
        size = x.shape[1] - abs(offset)
        a = x[:, max(0, offset) : max(0, offset) + size]
        b = y[:, max(0, -offset) : max(0, -offset) + size]
        kept = b >= 0
        shares[offset] = float(((a == b) & kept).sum() / kept.sum().clamp_min(1))
    best = max(shares, key=lambda one: shares[one])
    return best if shares[best] > 0.8 else None
