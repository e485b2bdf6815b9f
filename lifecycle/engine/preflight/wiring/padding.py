"""Is what lies beyond a row's end left out of its loss? There targets are below 0, as cross_entropy leaves them out."""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, forward
from trainworthy.lifecycle.gates.check import Outcome

ROWS = 64
# float32 sums of a whole row.
TOLERANCE = 1e-4


def padding(subject: Subject) -> Outcome:
    """Rows that are cut in the middle by their targets, with other outputs behind the cut: the losses must be equal."""
    data = few(subject, ROWS)
    targets = data.targets
    if subject.kind is None or not subject.kind.ragged or targets.ndim != 2 or targets.shape[1] < 2:
        return Outcome("not_applicable", "the label has no places that rows may lack")
    length, cut = targets.shape[1], targets.shape[1] // 2
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or outputs.ndim != 3 or length not in outputs.shape[1:]:
        return Outcome("not_applicable", "outputs have no dimension of the targets' places")
    axis = 1 if outputs.shape[1] == length else 2
    short = targets.clone()
    short[:, cut:] = -100
    # One output is raised, so that a softmax does not take it for the same.
    other = outputs.clone()
    other.narrow(axis, cut, length - cut).select(3 - axis, 0).add_(10.0)
    plain, changed = (_losses(subject, tensor, short) for tensor in (outputs, other))
    difference = float((plain - changed).abs().max() / plain.abs().max().clamp_min(1e-12))
    if not difference <= TOLERANCE:
        evidence = (
            f"with targets that end at place {cut} of {length}, outputs behind it change the loss by {difference:.2g}"
        )
        return Outcome("fail", evidence, difference, TOLERANCE)
    return _as_mean(subject, outputs, short, plain, cut)


def _as_mean(subject: Subject, outputs: Tensor, short: Tensor, plain: Tensor, cut: int) -> Outcome:
    """Rows of half as many bytes again: the halves' means must have the whole's mean, else the loss goes by length.

    A sum over bytes, or a mean over all places, is told: it weighs a long document more, and is no figure a byte.
    """
    half = cut // 2
    if not half:
        return Outcome("pass", "outputs behind the end of a row do not change its loss", 0.0, TOLERANCE)
    first, second = short.clone(), short.clone()
    first[:, half:] = -100
    second[:, :half] = -100
    parts = [
        (part_targets >= 0).sum(dim=1) * _losses(subject, outputs, part_targets).nan_to_num()
        for part_targets in (first, second)
    ]
    mean = sum(parts) / (short >= 0).sum(dim=1).clamp_min(1)
    difference = float((mean - plain).abs().max() / plain.abs().max().clamp_min(1e-12))
    if difference > 100 * TOLERANCE:
        evidence = (
            f"a row's loss is not the mean over its bytes: halves by themselves have {difference:.0%} less or more"
        )
        cause = "a sum over the bytes, or a mean over all places, those beyond the end among them"
        fix = "divide the sum over a row by (targets >= 0).sum(dim=1)"
        return Outcome("fail", evidence, difference, 100 * TOLERANCE, cause=cause, fix=fix, severity="warning")
    return Outcome("pass", "a row's loss is the mean over its own bytes", difference, TOLERANCE)


def _losses(subject: Subject, outputs: Tensor, targets: Tensor) -> Tensor:
    with same_random_numbers():
        return subject.recipe.loss_fn(outputs, targets).detach().double()
