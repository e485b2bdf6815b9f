"""Does predict mean what the loss means? It is handed the outputs that the loss likes best, without the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.preflight.check import Found
from lifecycle.preflight.subject import Subject
from lifecycle.preflight.wiring.passes import few, forward

if TYPE_CHECKING:
    from torch import Tensor

    from lifecycle.training.state import LossFn

ROWS, STEPS = 64, 24
# Probabilities of positive rows less those of negative ones, at the outputs that the loss likes best. Label smoothing
# of 0.4 leaves 0.6; a second sigmoid 0.23, and a softmax over one output 0.
APART = 0.5
# As many different outputs as this must give more than two probabilities.
DIFFERENT = 10


def predictions(subject: Subject) -> Found:
    """Fails if the best outputs do not give the labels, or if predict rounds."""
    import torch

    data = few(subject, ROWS)
    targets = data.targets
    if subject.predict is None or targets.ndim != 1 or not bool(((targets == 0) | (targets == 1)).all()):
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
    positive, negative = float(at_best[targets == 1].mean()), float(at_best[targets == 0].mean())
    apart = positive - negative
    told = f"at the outputs that the loss likes best, positive rows get {positive:.3f} and negative ones {negative:.3f}"
    if not apart > APART:
        return Found("fail", told, apart, APART)
    values, levels = len(outputs.unique(dim=0)), len(now.unique())
    if values >= DIFFERENT and levels <= 2:
        cause, fix = "predict rounds", "give the probability itself; whoever decides by it has the threshold"
        return Found("fail", f"{values} different outputs give {levels} probabilities", levels, 3, cause=cause, fix=fix)
    return Found("pass", told, apart, APART)


def _liked_best(loss_fn: LossFn, outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs after STEPS steps of 1 against the gradient's sign; within 0 and 1 if the loss takes no others."""
    import torch

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
