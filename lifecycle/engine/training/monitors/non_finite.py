"""What is not finite: loss, gradient, activations, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

from torch import Tensor

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.causes import NO_CONTEXT, diagnosed
from trainworthy.lifecycle.engine.training.monitors.evidence import Context
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import severity_of, symptom_of
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm

# More names say no more.
NAMED = 5
COME_BACK = "the weights come back from the newest checkpoint"


class NonFinite(Base):
    """Critical for loss, gradient and parameters; a warning for activations, since masks are minus infinity by design.

    `names` are the parameters', in the model's order. `follows` says what becomes of parameters that are not finite.
    `clean` is the update before which all parameters were last seen to be finite.
    """

    name = "non_finite"
    kept: ClassVar = ("clean",)

    def __init__(self, names: Sequence[str], follows: str = COME_BACK) -> None:
        super().__init__()
        self._names, self.follows, self.clean = names, follows, 0

    def after_backward(self, signals: Signals) -> Finding | None:
        if finite(signals.loss, signals.grad_norm):
            return None
        pairs = zip(self._names, signals.grad_norms, strict=True)
        where = tuple(name for name, norm in pairs if norm is not None and not finite(norm))
        return not_finite(signals.step, signals.loss, signals.grad_norm, where)

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        names = [name for name, norm in zip(sample.names, sample.norms, strict=True) if not finite(norm)]
        if names:
            return bad_parameters(sample.step, self.clean, names, self.follows)
        self.clean = sample.step + 1
        layers = tuple(layer.name for layer in sample.layers if not layer.finite)
        if not layers:
            return None
        return Finding(
            "non_finite_activation", severity_of("non_finite_activation"), sample.step, sample.step,
            symptom_of("non_finite_activation"),
            f"step {sample.step}: {_some(layers)}, while loss, gradient and parameters are", layers[:NAMED],
        )  # fmt: skip


def finite(*values: float) -> bool:
    """True if none is NaN or infinite."""
    return all(map(math.isfinite, values))


def not_finite(step: int, loss: float, grad_norm: float, where: tuple[str, ...] = ()) -> Finding:
    """The finding of an update whose loss or gradient is not finite."""
    what = "loss" if not finite(loss) else "gradient"
    of = f", of {_some(where)}" if what == "gradient" and where else ""
    name = f"non_finite_{what}"
    return Finding(
        name, severity_of(name), step, step, symptom_of(name),
        f"step {step}: loss {loss}, gradient norm {grad_norm}{of}; the update was not applied",
        where[:NAMED] if what == "gradient" else (),
    )  # fmt: skip


def bad_parameters(step: int, onset: int, names: Sequence[str], follows: str = COME_BACK) -> Finding:
    """The finding of weights that an update has made not finite. `follows` says what becomes of them."""
    return Finding(
        "non_finite_parameter", severity_of("non_finite_parameter"), step, onset, symptom_of("non_finite_parameter"),
        f"seen at step {step}: {_some(names)}; {follows}", tuple(names[:NAMED]),
    )  # fmt: skip


def bad_names(named: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Names of the tensors that are not finite."""
    return [name for name, tensor in named if not bool(tensor.isfinite().all())]


def not_finite_alarm(step: int, loss: float, grad_norm: float) -> Alarm:
    """What ends a training that nothing else watches."""
    return alarm_of(not_finite(step, loss, grad_norm))


def alarm_of(finding: Finding, before: Sequence[Finding] = (), context: Context = NO_CONTEXT) -> Alarm:
    """The alarm that ends a training by one finding."""
    why = diagnosed(finding, before, context)
    return Alarm(
        step=finding.step, onset=finding.onset, last_step=finding.step, monitor=finding.monitor, severity="critical",
        rule=why.rule, symptom=finding.symptom, evidence=finding.evidence, cause=why.cause, fix=why.fix,
        action="stop", where=finding.where,
    )  # fmt: skip


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
