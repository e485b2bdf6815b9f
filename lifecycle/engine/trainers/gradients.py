"""What a model's gradients are at the moment, for whoever does not make the update."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class Gradients(NamedTuple):
    """Norms of the gradients: of all together, and of each parameter in the model's order, None where there is none."""

    total: float
    norms: list[float | None]


def gradients_of(model: torch.nn.Module | None) -> Gradients | None:
    """The norms, read from the device once; None if no model is given or none of its parameters has a gradient."""
    if model is None:
        return None
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return None
    if any(gradient.is_sparse for gradient in gradients):
        values = [float(torch.linalg.vector_norm(_values(gradient))) for gradient in gradients]
    else:
        norms = torch._foreach_norm(gradients)  # pyright: ignore[reportPrivateImportUsage]
        values = torch.stack([norm.float() for norm in norms]).tolist()
    left = iter(values)
    each = [None if parameter.grad is None else next(left) for parameter in parameters]
    return Gradients(math.sqrt(sum(norm * norm for norm in values)), each)


def unclipped(gradients: Gradients, norm: float) -> Gradients:
    """The norms before clipping by the global norm, which shrinks all alike; `norm` is that of all together then."""
    if not (0 < gradients.total < norm < math.inf):
        return gradients
    times = norm / gradients.total
    return Gradients(norm, [None if value is None else value * times for value in gradients.norms])


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
