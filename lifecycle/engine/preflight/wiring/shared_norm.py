"""Does one batch norm normalise values of two distributions?

Each call uses its own mean and variance in training, and its running ones are a mix of both in evaluation, which is
neither. Twins are healthy: one layer gives each call its values, and rows of one kind have statistics that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainworthy.lifecycle.engine.preflight.start.steady import steady
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import put_back, spread
from trainworthy.lifecycle.gates.check import Outcome

SHARED_NORM = "shared_norm"
ROWS = 256
# In half of the channels, two calls' means lie so many standard deviations apart, or their deviations are so many times
# each other: of values that different layers give, beyond what chance makes of 256 rows (0.1 and 1.05); of one layer's,
# where evaluation is off by more than what tells rows apart.
OTHER_LAYERS, ONE_LAYER = (0.25, 1.2), (1.0, 2.0)


@dataclass(frozen=True)
class Call:
    """Which layer with weights ended last before a call, and the mean and deviation of each channel."""

    layer: str
    mean: Tensor
    deviation: Tensor


def shared_norm(subject: Subject) -> Outcome | None:
    """A warning for the first batch norm with running statistics whose calls in a training pass are so far apart."""
    model, data = subject.model(), spread(subject, ROWS)
    if subject.batch_rows() < 2 or len(data.targets) < 2:
        return None
    for name, calls in _calls(steady(model), data.inputs).items():
        for other in calls[1:]:
            means, deviations = _gap_and_ratio(calls[0], other)
            most = ONE_LAYER if other.layer == calls[0].layer else OTHER_LAYERS
            if means > most[0] or deviations > most[1]:
                evidence = (
                    f"{name} normalises {len(calls)} times in a pass; means of its channels lie {means:.2g} deviations"
                )
                evidence += f" apart, and the deviations differ {deviations:.2g}-fold (medians)"
                cause = "one batch norm at several places: in evaluation all use one mix of their means and variances"
                fix = f"give each place a batch norm of its own beside {name}, or take a LayerNorm or GroupNorm"
                return Outcome("fail", evidence, means, most[0], cause, fix, severity="warning", code=SHARED_NORM)
    return None


def _calls(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, list[Call]]:
    """The calls of each batch norm with running statistics, in a pass as in training."""
    calls: dict[str, list[Call]] = {}
    last = [""]

    def ended(name: str) -> None:
        last[0] = name

    def called(name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        calls[name].append(Call(last[0], *_of(args[0])))

    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.training:
            calls[name] = []
            module.register_forward_pre_hook(partial(called, name))
        elif any(parameter.ndim > 1 for parameter in module.parameters(recurse=False)):
            module.register_forward_hook(lambda *_, name=name: ended(name))
    if calls:
        with torch.no_grad(), put_back(model):
            model(dict(inputs))
    return calls


def _of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel."""
    columns = values.detach().float().movedim(1, 0).flatten(1)
    return columns.mean(1), columns.std(1, correction=0)


def _gap_and_ratio(call: Call, other: Call) -> tuple[float, float]:
    """How far the means of two calls are apart, in deviations, and the ratio of these; medians of the channels."""
    tiny = 1e-6 * float(call.deviation.max()) + 1e-12
    size = (call.deviation + other.deviation) / 2 + tiny
    ratio = ((other.deviation + tiny) / (call.deviation + tiny)).log().abs().median().exp()
    return float(((other.mean - call.mean).abs() / size).median()), float(ratio)
