"""Whether the network runs in the declared precision on this device, and which of its layers keeps it from that.

A device may have no kernel of a layer in 16 bits: torch has none for an LSTM in bf16 on a CPU without AVX-512. Words of
errors differ between libraries, so none are read: what fails in the declared precision and goes through in fp32, fails
for the precision.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from trainworthy.lifecycle.engine.preflight.configuration.parameters import one_backward, timed_rows
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.gates.check import Outcome


def runs_in_declared_precision(subject: Subject) -> Outcome:
    """Forward and backward of few rows in training, and forward in evaluation, whose kernels are others."""
    precision = subject.recipe.precision
    if precision == "fp32":
        return Outcome("not_applicable", "training.precision is fp32")
    model = subject.model()
    error = _raised(subject, model)
    if error is None:
        return Outcome(
            "pass", f"{timed_rows(subject)} rows run in {precision} on {subject.device}, in training and evaluation"
        )
    if _raised(in_fp32(subject), subject.model()) is not None:
        return Outcome("insufficient", "the network fails in fp32 as well: the precision is not the cause")
    name, layer = _layer(error, model)
    what = f"layer {name} ({layer})" if name else f"what {layer} does outside its layers, or the loss or a gradient,"
    evidence = f"{what} fails in {precision} on {subject.device} ({type(error).__name__}) and runs in fp32"
    called = f"self.{name}(x.float())" if name else "it, on .float() of what it is given"
    fix = (
        f"set training.precision: fp32, or run this part alone in fp32: "
        f'with torch.autocast("{subject.device.partition(":")[0]}", enabled=False): {called}'
    )
    return Outcome("fail", evidence, name or layer, fix=fix)


def in_fp32(subject: Subject) -> Subject:
    """The same training in fp32, for questions about its rows."""
    return replace(subject, recipe=replace(subject.recipe, precision="fp32"))


def _raised(subject: Subject, model: nn.Module) -> Exception | None:
    """What training or evaluation of few rows raises; None if both go through."""
    try:
        one_backward(subject, model, subject.recipe)
        rows = slice(timed_rows(subject))
        with torch.no_grad(), autocast(subject):
            model.eval()({name: tensor[rows] for name, tensor in subject.training.inputs.items()})
    except Exception as error:
        # Whatever torch or the use case's code raises.
        return error
    return None


def _layer(error: Exception, model: nn.Module) -> tuple[str, str]:
    """Name and class of the innermost module of the model that the error came up through; no name is the model's."""
    names = {id(module): name for name, module in model.named_modules()}
    innermost, frame = model, error.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        innermost = owner if id(owner) in names else innermost
        frame = frame.tb_next
    return names[id(innermost)], type(innermost).__name__
