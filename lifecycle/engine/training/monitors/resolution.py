"""What a parameter's type resolves beside its weights, and whether updates of a rate are lost in it."""

from __future__ import annotations

import math

import torch

from trainworthy.lifecycle.engine.training.state import TrainState


def rounds_away(state: TrainState, name: str, norm: float, gradient_norm: float) -> bool:
    """True if updates of this parameter are, at its rate, below half a unit in the last place of its typical weight.

    Of types of fewer digits than float32 alone: where these are too few, the rate is what is wrong. An update is taken
    for as large as the rate, as those of Adam and its like are at most, or the rate times the gradient for plain SGD.
    """
    parameter = state.model.get_parameter(name)
    if torch.finfo(parameter.dtype).bits >= 32:
        return False
    for optimizer in state.optimizers:
        for group in optimizer.param_groups:
            if any(member is parameter for member in group["params"]):
                root = math.sqrt(parameter.numel())
                update = group["lr"] * (gradient_norm / root if isinstance(optimizer, torch.optim.SGD) else 1.0)
                return 0 < update < torch.finfo(parameter.dtype).eps / 2 * norm / root
    return False
