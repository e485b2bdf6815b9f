"""Do the updates follow the loss's own slope? Where a part of it is detached by design, the loss need not fall."""

from __future__ import annotations

from torch import nn

from trainworthy.lifecycle.engine.outputs.slope import in_float64, slope_over_gradient
from trainworthy.lifecycle.engine.preflight.overfit.fit import Fit
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import losses
from trainworthy.lifecycle.engine.training.monitors.game import is_game
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Found

# By which share the slope may differ from the gradient. Measured: autoencoders, flows and masked models 1e-4, energies
# of samples that Langevin's dynamics makes 0.1 to 0.5, an adversary 0.1 to 0.8.
APART = 0.01


def by_a_game(
    subject: Subject, found: Fit, data: TrainData, before: float, least: float, evidence: str
) -> Found | None:
    """Where a loss that has moved by `least` from `before` need not fall further, else None. Ends the fit's model.

    One that rose need not either, if the network works against itself: some of its gradients are turned round.
    """
    if found.loss > before + least:
        return against_itself(subject, found, evidence)
    share = slope_of(subject, found.state.model, data) if found.loss < before - least else 1.0
    if not abs(share - 1) > APART:
        return None
    told = f"{evidence}; its slope along the gradient is {share:.2f} of the gradient's size: a part of it is detached"
    cause = "a loss of samples that the network makes itself, or of an adversary, whose value tells no progress"
    fix = "judge it by what it is for; if it is meant: preflight.not_applicable: {overfit.ten_batches: a reason}"
    return Found("insufficient", told, share, APART, cause, fix)


def against_itself(subject: Subject, found: Fit, evidence: str) -> Found | None:
    """Insufficient where some parameters learn to raise what others learn to lower; None where not."""
    if not is_game(subject.model(), subject.training, subject.recipe):
        return None
    told = f"{evidence}; some gradients are turned round, as an adversary's are: the loss tells no progress"
    cause = "an adversary, or a backward pass of your own with the wrong sign"
    fix = "if it is meant: preflight.not_applicable: {overfit.ten_batches: a reason}"
    return Found("insufficient", told, found.loss, None, cause, fix)


def slope_of(subject: Subject, model: nn.Module, data: TrainData) -> float:
    """The loss's slope on these rows over its gradient. The model is in float64 and in training mode afterwards; 1 if
    it takes no float64."""
    model = model.double().train()
    data = TrainData(in_float64(data.inputs), in_float64(data.targets))
    try:
        return slope_over_gradient(model, lambda: losses(model, data, subject.recipe.loss_fn).losses.mean())
    except RuntimeError:
        return 1.0
