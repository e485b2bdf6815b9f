"""Do the updates follow the loss's own slope? Where a part of it is detached by design, the loss need not fall.

An energy model's samples are made by the network and held fixed, an adversary's gradient is turned round: each update
changes what the loss is asked of, so that its value tells no progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.preflight.check import Found
from lifecycle.preflight.wiring.passes import losses
from lifecycle.training.state import TrainData

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lifecycle.preflight.overfit.fit import Fit
    from lifecycle.preflight.subject import Subject

# How far the weights are moved along the gradient, and by which share the slope may differ from it. Measured in
# float64: autoencoders, flows and masked models 1e-7, energies of samples that Langevin's dynamics makes 0.15.
MOVED, APART = 1e-4, 0.01


def by_a_game(subject: Subject, found: Fit, data: TrainData, fallen: float, evidence: str) -> Found | None:
    """Where a loss that has fallen below `fallen` need not fall further; None if it need. Ends the fit's model."""
    share = slope_over_gradient(subject, found.state.model, data) if found.loss < fallen else 1.0
    if not abs(share - 1) > APART:
        return None
    told = f"{evidence}; its slope along the gradient is {share:.2f} of the gradient's size: a part of it is detached"
    cause = "a loss of samples that the network makes itself, or of an adversary, whose value tells no progress"
    fix = "judge it by what it is for; if it is meant: preflight.not_applicable: {overfit.ten_batches: a reason}"
    return Found("insufficient", told, share, APART, cause, fix)


def slope_over_gradient(subject: Subject, model: nn.Module, data: TrainData) -> float:
    """The loss's slope along its gradient by the gradient's size, with equal random numbers: 1 where nothing is
    detached. The model is in float64 and in training mode afterwards; 1 if it takes no float64, or has no gradient."""
    import torch

    model = model.double().train()
    data = TrainData({name: _double(tensor) for name, tensor in data.inputs.items()}, _double(data.targets))
    try:
        found = losses(model, data, subject.recipe.loss_fn).losses.mean()
    except RuntimeError:
        return 1.0
    ways = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(found, ways, allow_unused=True) if found.requires_grad else ()
    pulled = [(p, gradient) for p, gradient in zip(ways, gradients, strict=False) if gradient is not None]
    size = sum(float(gradient.square().sum()) for _, gradient in pulled) ** 0.5
    if not 0 < size < float("inf"):
        return 1.0
    values = []
    with torch.no_grad():
        for step in (MOVED, -2 * MOVED):
            for parameter, gradient in pulled:
                parameter.add_(gradient, alpha=step / size)
            values.append(float(losses(model, data, subject.recipe.loss_fn).losses.mean()))
    return (values[0] - values[1]) / (2 * MOVED) / size


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
