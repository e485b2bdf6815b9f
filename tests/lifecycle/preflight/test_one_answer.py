"""Outputs that are the same for every row are told as what they are, and not by what follows from it."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import MLP, mlp, trial


class SoftmaxOfOne(MLP):
    def forward(self, inputs):
        return self.head(self.hidden(self.joined(inputs))).softmax(1).squeeze(1)


class LogSoftmaxOfOne(MLP):
    def forward(self, inputs):
        return self.head(self.hidden(self.joined(inputs))).log_softmax(1).squeeze(1)


class Dead(MLP):
    """Positive weights on inputs far below zero: every unit of the second layer is zero."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.first.weight.abs_()

    def joined(self, inputs):
        return super().joined(inputs) - 25


class ZeroHead(MLP):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class Unused(MLP):
    """A layer that forward does not use: outputs differ, and the check's own words are right."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 4)


def square(outputs, targets):
    return functional.mse_loss(outputs, targets, reduction="none")


@pytest.mark.parametrize("network", [SoftmaxOfOne, LogSoftmaxOfOne])
@pytest.mark.parametrize("check", ["gradients", "uses_labels", "uses_inputs"])
def test_outputs_that_are_one_constant_are_told_as_such(network, check):
    found = trial(mlp(network, loss_fn=square), check)
    assert (found.status, found.code) == ("fail", "constant_outputs")


def test_dead_units_are_told_as_such():
    found = trial(mlp(Dead), "uses_inputs")
    assert (found.status, found.code) == ("fail", "dead_units")


def test_head_of_zeros_passes_and_a_layer_that_is_not_used_is_told_as_before():
    assert trial(mlp(ZeroHead), "gradients").status == trial(mlp(ZeroHead), "uses_inputs").status == "pass"
    assert trial(mlp(Unused), "gradients").code == "wiring.gradients"
