"""Does predict mean what the loss means? It is handed the outputs that the loss likes best, without the network.

Of classes here, of numbers in numbers.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.outputs.free import link_along
from lifecycle.preflight.check import Found
from lifecycle.preflight.subject import Subject
from lifecycle.preflight.wiring.numbers import predicted_numbers
from lifecycle.preflight.wiring.passes import few, forward

if TYPE_CHECKING:
    from torch import Tensor

    from lifecycle.training.state import LossFn

ROWS, STEPS = 64, 24
# Probability of a class in its own rows less that in the others, at the outputs that the loss likes best. Label
# smoothing of 0.4 leaves 0.6; a second sigmoid 0.23, a second softmax at most that, a softmax over one output 0.
APART = 0.5
# As many different outputs as this must give more than two probabilities.
DIFFERENT = 10


def predictions(subject: Subject) -> Found:
    """Fails if the best outputs do not give the labels, or if predict rounds."""
    if subject.predict is None:
        return Found("not_applicable", "the model gives no answers")
    if subject.kind is not None and not subject.kind.classes:
        return predicted_numbers(subject, subject.kind)
    return _predicted_classes(subject)


def _predicted_classes(subject: Subject) -> Found:
    import torch

    assert subject.predict is not None
    data = few(subject, ROWS)
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
    best = _liked_best(subject.recipe.loss_fn, outputs.float(), targets)
    with torch.no_grad():
        at_best, now = subject.predict(best).float(), subject.predict(outputs).float()
    apart, told = _worst_class(subject, at_best, targets) if several else _of_two(at_best, targets)
    if not apart > APART:
        return Found("fail", told, apart, APART)
    values, levels = len(outputs.unique(dim=0)), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Found("fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix)
    return Found("pass", told, apart, APART)


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


def _liked_best(loss_fn: LossFn, outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs after STEPS steps of 1 against the gradient's sign; within 0 and 1 if the loss takes no others.

    Outputs that are probabilities or their logarithms stay such.
    """
    import torch

    link = link_along([outputs], 1) if outputs.ndim == 2 and outputs.shape[1] > 1 else None
    if link is not None:
        free = torch.zeros_like(outputs)
        for _ in range(STEPS):
            free = free.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_fn(link(free), targets).sum(), free)
            free = free - gradient.sign()
        return link(free).detach()

    def moved(low: float, high: float) -> Tensor:
        free = outputs.clamp(low, high)
        for _ in range(STEPS):
            free = free.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_fn(free, targets).sum(), free)
            free = (free - gradient.sign()).clamp(low, high)
        return free.detach()

    if bool(((outputs >= 0) & (outputs <= 1)).all()):
        try:
            return moved(-float("inf"), float("inf"))
        except (RuntimeError, ValueError):
            return moved(1e-6, 1 - 1e-6)
    return moved(-float("inf"), float("inf"))
