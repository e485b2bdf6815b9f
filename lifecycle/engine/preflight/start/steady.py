"""A network in training mode that draws nothing: what two looks at the same network are compared on."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def steady(model: nn.Module) -> nn.Module:
    """The model in training mode with its dropout off; batch norm uses the batch's own statistics."""
    model.train()
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    return model


def evaluating(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, where it can still go backward: cuDNN has a recurrent layer's gradient in training
    mode only."""
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.train()
            module.dropout = 0.0
    return model
