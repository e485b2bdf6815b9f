"""Does predict mean what the loss means? It is handed the outputs that the loss likes best, without the network.

Of classes here, of several labels a row in labels.py, of numbers in numbers.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free import link_along, lowest_loss, same
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import APART, DIFFERENT, ROWS, liked_best, of_places, of_size
from trainworthy.lifecycle.engine.preflight.wiring.labels import predicted_labels
from trainworthy.lifecycle.engine.preflight.wiring.numbers import falls_without_end, predicted_numbers
from trainworthy.lifecycle.engine.preflight.wiring.passes import forward, spread
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.gates.check import Found

# Half of how far the outputs of the other classes lie above that of the row's own: this has a probability of 0.006.
UNLIKELY = 2.0


def predictions(subject: Subject) -> Found:
    """Fails if the best outputs do not give the labels, or if predict rounds."""
    if subject.predict is None:
        return Found("not_applicable", "the model gives no answers")
    if subject.kind is not None and not subject.kind.classes:
        return predicted_numbers(subject, subject.kind)
    if subject.kind is not None and not subject.kind.row_classes and subject.training.targets.is_floating_point():
        return predicted_labels(subject, subject.kind)
    return _predicted_classes(subject)


def _predicted_classes(subject: Subject) -> Found:
    assert subject.predict is not None
    data = spread(subject, ROWS)
    targets = data.targets
    several = subject.kind is not None and subject.kind.name != "binary"
    if not several and (targets.ndim != 1 or not bool(((targets == 0) | (targets == 1)).all())):
        return Found("not_applicable", "predict gives no probability of a label of two values")
    if len(targets.unique()) < 2:
        return Found("not_applicable", f"all of {len(targets)} rows have one label")
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point() or len(outputs) != len(targets):
        return Found("not_applicable", "outputs are no tensor of a row each")
    outputs, loss_fn = outputs.float(), subject.recipe.loss_fn
    bests = [liked_best(loss_fn, outputs, targets)]
    axis = _class_axis(subject, outputs, targets) if several else None
    if axis is not None:
        bests.append(_from_the_others(loss_fn, outputs, targets, axis))
    with torch.no_grad():
        ats, now = [subject.predict(best).float() for best in bests], subject.predict(outputs).float()
    if several and subject.kind is not None:
        along, wanted = subject.kind.class_axis, [*targets.shape]
        wanted.insert(along % (len(wanted) + 1), len(subject.kind.classes))
        ats = [of_size(at, targets, along) for at in ats]
        if any(list(at.shape) != wanted for at in ats):
            return Found("not_applicable", "predict gives no probability of each class")
        # A pixel of a mask is judged as a row.
        flat = [of_places(at, targets, axis=along) for at in ats]
        ats, targets = [at for at, _ in flat], flat[0][1]
    found = [_worst_class(subject, at, targets) if several else _of_two(at, targets) for at in ats]
    apart, told = min(found, key=lambda one: one[0])
    if not apart > APART:
        if falls_without_end(lambda some: loss_fn(some, data.targets), outputs, bests[0]):
            return Found("insufficient", f"{told}; but the loss falls without end, so that none is the best one")
        other = _other_order(subject, ats[0], targets) if several else None
        cause, fix = other or (("", "") if apart == found[0][0] else _NOT_THE_CLASS)
        return Found("fail", told, apart, APART, cause=cause, fix=fix)
    values, levels = (outputs.unique().numel() if outputs.ndim > 2 else len(outputs.unique(dim=0))), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Found("fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix)
    return Found("pass", told, apart, APART)


_NOT_THE_CLASS = (
    "other outputs than those of the row's class please the loss as well: it compares numbers of classes",
    "use cross_entropy(outputs, targets, reduction='none'): classes have no order and no distances",
)


def _class_axis(subject: Subject, outputs: Tensor, targets: Tensor) -> int | None:
    """The dimension of the outputs that holds the classes: the one of predict's answers, else the second; None if it
    is another."""
    own = subject.kind.class_axis if subject.kind else 1
    for axis in (own, 1):
        others = [*outputs.shape]
        if outputs.ndim == targets.ndim + 1 and others.pop(axis) > int(targets.max()) and others == [*targets.shape]:
            return axis
    return None


def _from_the_others(loss_fn: LossFn, outputs: Tensor, targets: Tensor, axis: int) -> Tensor:
    """Outputs of a low loss that are reached downhill from all classes but the row's own."""
    start = outputs * 0 + UNLIKELY
    # A place without a target has no class of its own.
    start.scatter_(axis, targets.long().clamp_min(0).unsqueeze(axis), -UNLIKELY)
    link = link_along([outputs], axis) or same
    _, found = lowest_loss({0: start}, lambda free: loss_fn(link(free[0]), targets).mean())
    return link(found[0])


def _other_order(subject: Subject, at_best: Tensor, targets: Tensor) -> tuple[str, str] | None:
    """Cause and fix if each class's rows are surely given to one class, and some to another than their own."""
    assert subject.kind is not None
    given = {place: at_best[targets == place].mean(dim=0).max(dim=0) for place in targets.unique().tolist()}
    to = {place: int(most.indices) for place, most in given.items() if float(most.values) > APART}
    wrong = [place for place in to if to[place] != place]
    if len(to) < len(given) or len(set(to.values())) < len(to) or not wrong:
        return None
    names = subject.kind.classes
    told = ", ".join(f"{names[place]} is answered as {names[to[place]]}" for place in wrong[:3])
    return f"predict and loss_fn have the classes in different orders: {told}", (
        "keep the order of the contract's classes in both: output k is the k-th class, as target k is"
    )


def _of_two(at_best: Tensor, targets: Tensor) -> tuple[float, str]:
    """Mean probability of positive rows less that of negative ones, and both in words."""
    positive, negative = float(at_best[targets == 1].mean()), float(at_best[targets == 0].mean())
    told = f"at the outputs that the loss likes best, positive rows get {positive:.3f} and negative ones {negative:.3f}"
    return positive - negative, told


def _worst_class(subject: Subject, at_best: Tensor, targets: Tensor) -> tuple[float, str]:
    """As _of_two, of the class whose rows are least apart from the others."""
    assert subject.kind is not None
    found = []
    for place in targets.unique().tolist():
        own, other = (float(at_best[rows, place].mean()) for rows in (targets == place, targets != place))
        found.append((own - other, own, other, subject.kind.classes[place]))
    apart, own, other, name = min(found, key=lambda one: one[0])
    told = (
        f"at the outputs that the loss likes best, rows of class {name} get a probability of {own:.3f} for it, and "
        f"other rows {other:.3f}"
    )
    return apart, told
