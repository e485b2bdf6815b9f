"""Are axes where the network takes them to be: channels first, as a convolution of torch wants them, and permuted?

Of (N, H, W, C) it would take the rows of the picture for channels, and slide over columns and colours. Rows give
themselves away: neighbours are alike and distant ones are not, just as columns are, while channels have no order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from trainworthy.lifecycle.engine.preflight.inputs.axes import CAUSE, FIX
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import forward, spread
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

ROWS = 64
# Colours, one or with transparency; a picture has more places along each side.
MOST_CHANNELS = 4
# How much more neighbours correlate than places half a side apart. Digits of 8 × 8 have 0.25 and 0.26 along their
# sides, discs and boxes of 16 × 16 0.31; the digits' rows in 16 other orders -0.19 to 0.18, noise within 0.03.
ORDERED = 0.2


def channels_first(subject: Subject) -> Outcome:
    """By the two-dimensional convolutions that get an input as it is, or turned and scaled only; and by files.

    What was reshaped where it had to be permuted is told first, whatever the network is.
    """
    if subject.reshaped:
        evidence = "; ".join(subject.reshaped)
        return Outcome("fail", evidence, len(subject.reshaped), 0, cause=CAUSE, fix=FIX)
    pictures = {name: tensor for name, tensor in subject.training.valued.items() if _last(tensor)}
    if not pictures:
        return Outcome("not_applicable", "no input has the shape (N, H, W, C) of pictures with channels last")
    data, taken = spread(subject, ROWS), set[tuple[int, ...]]()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.conv2d, functional.conv2d) and args:
                taken.add(tuple(args[0].shape[1:]))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        forward(subject.model().eval(), data.inputs)
    for name in pictures:
        values = data.inputs[name]
        if tuple(values.shape[1:]) in taken and min(_order(values, 1), _order(values, 2)) > ORDERED:
            evidence = (
                f"a convolution takes {name} of shape (N, {', '.join(map(str, values.shape[1:]))}) as it is: its "
            )
            evidence += f"{values.shape[1]} channels are ordered as the rows of a picture are"
            return Outcome("fail", evidence, round(_order(values, 1), 3), ORDERED, severity="warning")
    return Outcome("pass", f"no convolution takes {', '.join(pictures)} with channels last")


def _last(tensor: Tensor) -> bool:
    shape = tensor.shape[1:]
    return tensor.ndim == 4 and tensor.is_floating_point() and shape[2] <= MOST_CHANNELS < min(shape[:2])


def _order(values: Tensor, axis: int) -> float:
    """Correlation of neighbours along the axis less that of places half a side apart."""
    lines = values.float().movedim(axis, 0).flatten(1)
    lines = lines - lines.mean(1, keepdim=True)
    lines = lines / lines.norm(dim=1, keepdim=True).clamp_min(1e-12)
    near, far = (float((lines[:-step] * lines[step:]).sum(1).mean()) for step in (1, len(lines) // 2))
    return near - far


CHECKS: tuple[Check[Any], ...] = (check_of("inputs.channels_first", channels_first),)
