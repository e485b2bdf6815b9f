"""A few rows, and a network in training mode that draws nothing: what two looks at the same network are compared on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lifecycle.preflight.subject import Subject
from lifecycle.training import loop

if TYPE_CHECKING:
    from torch import Tensor, nn


def spread_rows(subject: Subject, most: int) -> Tensor:
    """Numbers of at most `most` training rows, evenly spread: rows may be sorted by time or by label."""
    import torch

    count = len(subject.training.targets)
    return torch.linspace(0, count - 1, min(most, count), device=subject.device).round().long()


def steady(model: nn.Module) -> nn.Module:
    """The model in training mode with its dropout off; batch norm uses the batch's own statistics."""
    from torch.nn.modules.dropout import _DropoutNd

    model.train()
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    return model


def evaluating(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, where it can still go backward: cuDNN has a recurrent layer's gradient in training
    mode only."""
    import torch

    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.train()
            module.dropout = 0.0
    return model


def autocast(subject: Subject) -> AbstractContextManager[object]:
    """The precision that the recipe trains in."""
    import torch

    return loop.autocast(subject.recipe.precision, torch.device(subject.device).type)
