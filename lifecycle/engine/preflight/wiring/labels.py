"""Does predict mean what the loss means, where a row has any number of labels? Asked at the outputs it likes best.

A softmax over the labels is told by what it does, wherever it stands: in predict its probabilities add up to 1 in rows
of no label and of several too; in the loss nothing changes when all outputs of a row are raised alike, so that nothing
says how probable any of them is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free import NEAR_ONE
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import APART, DIFFERENT, ROWS, liked_best
from trainworthy.lifecycle.engine.preflight.wiring.bounded import is_softmax
from trainworthy.lifecycle.engine.preflight.wiring.numbers import falls_without_end
from trainworthy.lifecycle.engine.preflight.wiring.passes import forward, spread
from trainworthy.lifecycle.gates.check import Found
from trainworthy.lifecycle.tasks import Kind

_FIX = "a row may have any number of labels: torch.sigmoid(outputs) in predict, and in loss_fn "
_FIX += "binary_cross_entropy_with_logits(outputs, targets, reduction='none').mean(dim=1)"


def predicted_labels(subject: Subject, kind: Kind) -> Found:
    """Fails if the best outputs do not give each row its labels, or if predict rounds."""
    assert subject.predict is not None
    data, loss_fn = spread(subject, ROWS), subject.recipe.loss_fn
    targets = data.targets
    columns = targets.T if targets.ndim == 2 else ()
    varied = [place for place, column in enumerate(columns) if bool((column != column[0]).any())]
    if not varied:
        return Found("not_applicable", f"all of {len(targets)} rows have the same labels")
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point() or len(outputs) != len(targets):
        return Found("not_applicable", "outputs are no tensor of a row each")
    outputs = outputs.float()
    best = liked_best(loss_fn, outputs, targets)
    with torch.no_grad():
        at, now = subject.predict(best).float(), subject.predict(outputs).float()
    if at.shape != targets.shape:
        return Found("not_applicable", "predict gives no probability of each label")
    wrong = _added_up(at, targets) or _compared(subject, outputs, targets)
    if wrong is not None:
        return wrong
    apart, told = _worst_label(kind, at, targets, varied)
    if not apart > APART:
        if falls_without_end(lambda some: loss_fn(some, targets), outputs, best):
            return Found("insufficient", f"{told}; but the loss falls without end, so that none is the best one")
        cause, fix = _other_order(kind, at, targets, varied)
        return Found("fail", told, apart, APART, cause=cause, fix=fix)
    values, levels = len(outputs.unique(dim=0)), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Found("fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix)
    return Found("pass", told, apart, APART)


def _added_up(at: Tensor, targets: Tensor) -> Found | None:
    """What is wrong if the probabilities of each row add up to 1, though rows have no label or several."""
    others = targets.sum(dim=1) != 1
    if not bool(others.any()) or not bool(((at.sum(dim=1) - 1).abs() < NEAR_ONE).all()):
        return None
    told = (
        f"at the outputs that the loss likes best the probabilities of each row add up to 1, and {int(others.sum())} "
        f"of {len(targets)} rows have no label or several"
    )
    return Found("fail", told, 1.0, cause="a softmax over the labels, in predict or in the network", fix=_FIX)


def _compared(subject: Subject, outputs: Tensor, targets: Tensor) -> Found | None:
    """What is wrong if the loss goes by the differences of a row's outputs alone."""
    if outputs.ndim != 2 or not bool((targets.sum(dim=1) != 1).any()):
        return None
    if not is_softmax(lambda leaves: subject.recipe.loss_fn(leaves[0], targets), [outputs.detach()], 0, 1):
        return None
    told = "the loss stays the same when all outputs of a row are raised alike: it compares labels with each other"
    return Found("fail", told, cause="a softmax over the labels in loss_fn, such as cross_entropy", fix=_FIX)


def _worst_label(kind: Kind, at: Tensor, targets: Tensor, varied: list[int]) -> tuple[float, str]:
    """Mean probability in rows with the label less that in rows without, where it is least; and both in words."""
    found = []
    for place in varied:
        own, other = (float(at[targets[:, place] == value, place].mean()) for value in (1, 0))
        found.append((own - other, own, other, kind.classes[place]))
    apart, own, other, name = min(found, key=lambda one: one[0])
    told = (
        f"at the outputs that the loss likes best, rows with label {name} get a probability of {own:.3f} for it, and "
        f"rows without it {other:.3f}"
    )
    return apart, told


def _other_order(kind: Kind, at: Tensor, targets: Tensor, varied: list[int]) -> tuple[str, str]:
    """Cause and fix if each label is surely answered in one place, and some in another than their own."""
    to = {}
    for place in varied:
        rows = targets[:, place] == 1
        most = (at[rows].mean(dim=0) - at[~rows].mean(dim=0)).max(dim=0)
        if float(most.values) > APART:
            to[place] = int(most.indices)
    wrong = [place for place in to if to[place] != place]
    if len(to) < len(varied) or len(set(to.values())) < len(to) or not wrong:
        return "", ""
    told = ", ".join(f"{kind.classes[place]} is answered as {kind.classes[to[place]]}" for place in wrong[:3])
    return f"predict and loss_fn have the labels in different orders: {told}", (
        "keep the order of the contract's classes in both: output k is the k-th label, as target k is"
    )
