"""Does predict mean what the loss means? It is handed the outputs that the loss likes best, without the network.

Of classes and of several labels a row; of numbers in numbers.py. A softmax over the labels is told by what it does,
wherever it stands: in predict its probabilities add up to 1 in rows of no label and of several too; in the loss nothing
changes when all outputs of a row are raised alike, so that nothing says how probable any of them is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import NEAR_ONE, link_along, lowest_loss, same
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import (
    DIFFERENT,
    LEAST_GAP,
    ROWS,
    liked_best,
    of_places,
    of_size,
)
from trainworthy.lifecycle.engine.preflight.wiring.descent import leads_away
from trainworthy.lifecycle.engine.preflight.wiring.loss_floor import is_softmax
from trainworthy.lifecycle.engine.preflight.wiring.numbers import ENDLESS, falls_without_end, predicted_numbers
from trainworthy.lifecycle.engine.preflight.wiring.passes import forward, spread
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.tasks import Kind

# Half of how far the outputs of the other classes lie above that of the row's own: this has a probability of 0.006.
UNLIKELY = 2.0
# Outputs that are looked at: 64 masks of 32 x 32 points and 16 classes. 64 rows of 90 x 120 points and 11 took 27 s.
MOST_NUMBERS, FEWEST_ROWS = 2**20, 2


def predictions(subject: Subject) -> Outcome:
    """Fails if the best outputs do not give the labels, or if predict rounds."""
    if subject.predict is None:
        return Outcome("not_applicable", "the model gives no answers")
    if subject.kind is not None and not subject.kind.classes:
        return predicted_numbers(subject, subject.kind)
    if subject.kind is not None and not subject.kind.row_classes and subject.training.targets.is_floating_point():
        return predicted_labels(subject, subject.kind)
    return _predicted_classes(subject)


def _predicted_classes(subject: Subject) -> Outcome:
    assert subject.predict is not None
    data = spread(subject, _rows_looked_at(subject))
    targets = data.targets
    several = subject.kind is not None and subject.kind.name != "binary"
    if not several and (targets.ndim != 1 or not bool(((targets == 0) | (targets == 1)).all())):
        return Outcome("not_applicable", "predict gives no probability of a label of two values")
    if len(targets.unique()) < 2:
        return Outcome("not_applicable", f"all of {len(targets)} rows have one label")
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point() or len(outputs) != len(targets):
        return Outcome("not_applicable", "outputs are no tensor of a row each")
    outputs, loss_fn = outputs.float(), subject.recipe.loss_fn
    bests = [liked_best(loss_fn, outputs, targets)]
    axis = _class_axis(subject, outputs, targets) if several else None
    if axis is not None:
        bests.append(_from_the_others(loss_fn, outputs, targets, axis))
    with torch.no_grad():
        ats, now = [subject.predict(best).float() for best in bests], subject.predict(outputs).float()
    if several and subject.kind is not None:
        along, shape = subject.kind.class_axis, [*targets.shape]
        shape.insert(along % (len(shape) + 1), len(subject.kind.classes))
        ats = [of_size(at, targets, along) for at in ats]
        if any(list(at.shape) != shape for at in ats):
            return Outcome("not_applicable", "predict gives no probability of each class")
        # A pixel of a mask is judged as a row.
        flat = [of_places(at, targets, axis=along) for at in ats]
        ats, targets = [at for at, _ in flat], flat[0][1]
    gaps = [_worst_class(subject, at, targets) if several else _of_two(at, targets) for at in ats]
    gap, evidence = min(gaps, key=lambda class_gap: class_gap[0])
    if not gap > LEAST_GAP:
        if falls_without_end(lambda some: loss_fn(some, data.targets), outputs, bests[0]):
            away = leads_away(subject, outputs, data.targets)
            return away or Outcome("insufficient", f"{evidence}; but {ENDLESS}")
        other = _other_order(subject, ats[0], targets) if several else None
        other = other or (None if axis is None else _without_gradient(subject, outputs, data.targets, axis))
        cause, fix = other or (("", "") if gap == gaps[0][0] else _NOT_THE_CLASS)
        return Outcome("fail", evidence, gap, LEAST_GAP, cause=cause, fix=fix)
    values, levels = (outputs.unique().numel() if outputs.ndim > 2 else len(outputs.unique(dim=0))), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Outcome(
            "fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix
        )
    return Outcome("pass", evidence, gap, LEAST_GAP)


def _rows_looked_at(subject: Subject) -> int:
    """As many rows as have MOST_NUMBERS outputs: each point of a mask is judged as a row."""
    of_a_row = spread(subject, 1).targets.numel() * max(1, len(subject.kind.classes) if subject.kind else 1)
    return max(FEWEST_ROWS, min(ROWS, MOST_NUMBERS // of_a_row))


_NOT_THE_CLASS = (
    "other outputs than those of the row's class please the loss as well: it compares numbers of classes",
    "use cross_entropy(outputs, targets, reduction='none'): classes have no order and no distances",
)


def _without_gradient(subject: Subject, outputs: Tensor, targets: Tensor, axis: int) -> tuple[str, str] | None:
    """Cause and fix if the loss takes nothing from the places of a class, so that any answer of them is as good."""
    assert subject.kind is not None
    free = outputs.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(subject.recipe.loss_fn(free, targets).sum(), free)
    moved = gradient.abs().sum(dim=axis) > 0
    classes = [place for place in targets.unique().tolist() if place >= 0]
    names = [subject.kind.classes[int(place)] for place in classes if not bool(moved[targets == place].any())]
    if not names or len(names) == len(classes):
        # Of a loss that takes nothing from any output other checks tell.
        return None
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"the loss takes no gradient from class {shown}: an ignore_index that is a real class, or a weight of 0", (
        "let every class of the contract count in loss_fn; what has no label has a target below 0"
    )


def _class_axis(subject: Subject, outputs: Tensor, targets: Tensor) -> int | None:
    """The dimension of the outputs that holds the classes: the one of predict's answers, else the second; None if it
    is another."""
    own = subject.kind.class_axis if subject.kind else 1
    for axis in (own, 1):
        other_dims = [*outputs.shape]
        if (
            outputs.ndim == targets.ndim + 1
            and other_dims.pop(axis) > int(targets.max())
            and other_dims == [*targets.shape]
        ):
            return axis
    return None


def _from_the_others(loss_fn: LossFn, outputs: Tensor, targets: Tensor, axis: int) -> Tensor:
    """Outputs of a low loss that are reached downhill from all classes but the row's own."""
    start = outputs * 0 + UNLIKELY
    # A place without a target has no class of its own.
    start.scatter_(axis, targets.long().clamp_min(0).unsqueeze(axis), -UNLIKELY)
    link = link_along([outputs], axis) or same
    _, parameters = lowest_loss({0: start}, lambda free: loss_fn(link(free[0]), targets).mean())
    return link(parameters[0])


def _other_order(subject: Subject, at_best: Tensor, targets: Tensor) -> tuple[str, str] | None:
    """Cause and fix if each class's rows are surely given to one class, and some to another than their own."""
    assert subject.kind is not None
    given = {place: at_best[targets == place].mean(dim=0).max(dim=0) for place in targets.unique().tolist()}
    to = {place: int(most.indices) for place, most in given.items() if float(most.values) > LEAST_GAP}
    wrong = [place for place in to if to[place] != place]
    if len(to) < len(given) or len(set(to.values())) < len(to) or not wrong:
        return None
    names = subject.kind.classes
    swaps = ", ".join(f"{names[place]} is answered as {names[to[place]]}" for place in wrong[:3])
    return f"predict and loss_fn have the classes in different orders: {swaps}", (
        "keep the order of the contract's classes in both: output k is the k-th class, as target k is"
    )


def _of_two(at_best: Tensor, targets: Tensor) -> tuple[float, str]:
    """Mean probability of positive rows less that of negative ones, and both in words."""
    positive, negative = float(at_best[targets == 1].mean()), float(at_best[targets == 0].mean())
    evidence = (
        f"at the outputs that the loss likes best, positive rows get {positive:.3f} and negative ones {negative:.3f}"
    )
    return positive - negative, evidence


def _worst_class(subject: Subject, at_best: Tensor, targets: Tensor) -> tuple[float, str]:
    """As _of_two, of the class whose rows are least apart from the others."""
    assert subject.kind is not None
    gaps = []
    for place in targets.unique().tolist():
        own, other = (float(at_best[rows, place].mean()) for rows in (targets == place, targets != place))
        gaps.append((own - other, own, other, subject.kind.classes[place]))
    gap, own, other, name = min(gaps, key=lambda class_gap: class_gap[0])
    evidence = (
        f"at the outputs that the loss likes best, rows of class {name} get a probability of {own:.3f} for it, and "
        f"other rows {other:.3f}"
    )
    return gap, evidence


_FIX = "a row may have any number of labels: torch.sigmoid(outputs) in predict, and in loss_fn "
_FIX += "binary_cross_entropy_with_logits(outputs, targets, reduction='none').mean(dim=1)"


def predicted_labels(subject: Subject, kind: Kind) -> Outcome:
    """Fails if the best outputs do not give each row its labels, or if predict rounds."""
    assert subject.predict is not None
    data, loss_fn = spread(subject, ROWS), subject.recipe.loss_fn
    targets = data.targets
    columns = targets.T if targets.ndim == 2 else ()
    varied = [place for place, column in enumerate(columns) if bool((column != column[0]).any())]
    if not varied:
        return Outcome("not_applicable", f"all of {len(targets)} rows have the same labels")
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point() or len(outputs) != len(targets):
        return Outcome("not_applicable", "outputs are no tensor of a row each")
    outputs = outputs.float()
    best = liked_best(loss_fn, outputs, targets)
    with torch.no_grad():
        at, now = subject.predict(best).float(), subject.predict(outputs).float()
    if at.shape != targets.shape:
        return Outcome("not_applicable", "predict gives no probability of each label")
    wrong = _added_up(at, targets) or _compared(subject, outputs, targets)
    if wrong is not None:
        return wrong
    gap, evidence = _worst_label(kind, at, targets, varied)
    if not gap > LEAST_GAP:
        if falls_without_end(lambda some: loss_fn(some, targets), outputs, best):
            return leads_away(subject, outputs, targets) or Outcome("insufficient", f"{evidence}; but {ENDLESS}")
        cause, fix = _other_order_of_labels(kind, at, targets, varied)
        return Outcome("fail", evidence, gap, LEAST_GAP, cause=cause, fix=fix)
    values, levels = len(outputs.unique(dim=0)), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Outcome(
            "fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix
        )
    return Outcome("pass", evidence, gap, LEAST_GAP)


def _added_up(at: Tensor, targets: Tensor) -> Outcome | None:
    """What is wrong if the probabilities of each row add up to 1, though rows have no label or several."""
    not_single = targets.sum(dim=1) != 1
    if not bool(not_single.any()) or not bool(((at.sum(dim=1) - 1).abs() < NEAR_ONE).all()):
        return None
    evidence = (
        f"at the outputs that the loss likes best the probabilities of each row add up to 1, and "
        f"{int(not_single.sum())} of {len(targets)} rows have no label or several"
    )
    return Outcome("fail", evidence, 1.0, cause="a softmax over the labels, in predict or in the network", fix=_FIX)


def _compared(subject: Subject, outputs: Tensor, targets: Tensor) -> Outcome | None:
    """What is wrong if the loss goes by the differences of a row's outputs alone."""
    if outputs.ndim != 2 or not bool((targets.sum(dim=1) != 1).any()):
        return None
    if not is_softmax(lambda leaves: subject.recipe.loss_fn(leaves[0], targets), [outputs.detach()], 0, 1):
        return None
    evidence = "the loss stays the same when all outputs of a row are raised alike: it compares labels with each other"
    return Outcome("fail", evidence, cause="a softmax over the labels in loss_fn, such as cross_entropy", fix=_FIX)


def _worst_label(kind: Kind, at: Tensor, targets: Tensor, varied: list[int]) -> tuple[float, str]:
    """Mean probability in rows with the label less that in rows without, where it is least; and both in words."""
    gaps = []
    for place in varied:
        own, other = (float(at[targets[:, place] == value, place].mean()) for value in (1, 0))
        gaps.append((own - other, own, other, kind.classes[place]))
    gap, own, other, name = min(gaps, key=lambda label_gap: label_gap[0])
    evidence = (
        f"at the outputs that the loss likes best, rows with label {name} get a probability of {own:.3f} for it, and "
        f"rows without it {other:.3f}"
    )
    return gap, evidence


def _other_order_of_labels(kind: Kind, at: Tensor, targets: Tensor, varied: list[int]) -> tuple[str, str]:
    """Cause and fix if each label is surely answered in one place, and some in another than their own."""
    to = {}
    for place in varied:
        rows = targets[:, place] == 1
        most = (at[rows].mean(dim=0) - at[~rows].mean(dim=0)).max(dim=0)
        if float(most.values) > LEAST_GAP:
            to[place] = int(most.indices)
    wrong = [place for place in to if to[place] != place]
    if len(to) < len(varied) or len(set(to.values())) < len(to) or not wrong:
        return "", ""
    swaps = ", ".join(f"{kind.classes[place]} is answered as {kind.classes[to[place]]}" for place in wrong[:3])
    return f"predict and loss_fn have the labels in different orders: {swaps}", (
        "keep the order of the contract's classes in both: output k is the k-th label, as target k is"
    )
