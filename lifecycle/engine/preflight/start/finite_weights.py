"""Are the fresh network's weights and buffers finite? First of all, since whatever runs the network would fail for it.

A parameter has to be: no checkpoint takes another. A buffer may hold infinities by design, as a mask that attention
adds, or NaN that forward passes over; so it counts where finite values in its place make the outputs finite.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, floats, forward
from trainworthy.lifecycle.gates.check import Outcome


def weights_are_finite(subject: Subject) -> Outcome:
    """Every parameter, then each buffer that is not finite by what it does to the outputs in evaluation mode."""
    model = subject.model()
    broken = _not_finite(dict(model.named_parameters()))
    what = "weights" if broken else "buffers"
    broken = broken or _harmful(subject, model, _not_finite(dict(model.named_buffers())))
    if not broken:
        return Outcome("pass", "all weights are finite, and no buffer makes outputs that are not", 0, 0)
    named = ", ".join(f"{name} ({count} of {size})" for name, (count, size) in list(broken.items())[:4])
    more = f" and {len(broken) - 4} more" if len(broken) > 4 else ""
    evidence = f"values of the fresh network's {what} are NaN or infinite: {named}{more}"
    return Outcome("fail", evidence, len(broken), 0)


def _not_finite(tensors: dict[str, Tensor]) -> dict[str, tuple[int, int]]:
    """Of each such tensor, how many of its values are not finite, and how many it has."""
    known = {n: t.detach() for n, t in tensors.items() if not is_lazy(t) and t.is_floating_point()}
    counts = {name: int((~tensor.isfinite()).sum()) for name, tensor in known.items()}
    return {name: (count, known[name].numel()) for name, count in counts.items() if count}


def _harmful(subject: Subject, model: nn.Module, suspects: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The suspects if outputs are not finite with them, and are with finite values in their place."""
    if not suspects or _outputs_are_finite(subject, model) is not False:
        return {}
    buffers = dict(model.named_buffers())
    with torch.no_grad():
        for name in suspects:
            buffers[name].nan_to_num_(0.0, 0.0, 0.0)
    return suspects if _outputs_are_finite(subject, model) else {}


def _outputs_are_finite(subject: Subject, model: nn.Module) -> bool | None:
    """None if the network raises: other checks tell that, with its line."""
    try:
        with torch.no_grad():
            outputs = floats(forward(model.eval(), few(subject).inputs))
    except Exception:
        return None
    return all(bool(output.isfinite().all()) for output in outputs)
