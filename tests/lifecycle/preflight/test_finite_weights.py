"""Weights and buffers of a fresh network that are not finite are told first, and alone."""

import math

import pytest
import torch
from wiring_subjects import CNN, GPT, MLP, cnn, gpt, mlp

from trainworthy.lifecycle.engine.preflight.run import run_battery
from trainworthy.lifecycle.engine.preflight.start.finite_weights import weights_are_finite


def with_weight(value):
    def network():
        model = MLP()
        with torch.no_grad():
            model.second.weight[0, 0] = value
        return model

    return network


def with_statistic(value):
    def network():
        model = CNN()
        model.get_buffer("norm.running_mean")[0] = value
        return model

    return network


class AdditiveMask(GPT):
    """A mask of 0 and minus infinity, and NaN that nothing reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("added", torch.full((8, 8), -math.inf).triu(1))
        self.register_buffer("spare", torch.tensor(math.nan))

    def weights(self, scores):
        return (scores + self.added).softmax(2)


class Raises(MLP):
    def __init__(self):
        super().__init__()
        self.register_buffer("spare", torch.tensor(math.nan))

    def forward(self, inputs):
        raise ValueError("no forward")


@pytest.mark.parametrize(
    "of",
    [
        mlp(with_weight(math.nan)),
        mlp(with_weight(math.inf)),
        cnn(with_statistic(math.nan)),
    ],
    ids=["nan_weight", "infinite_weight", "nan_statistic"],
)
def test_value_that_is_not_finite_is_told_once_and_nothing_else_is_tried(of):
    first, *rest = run_battery(of)
    assert (first.check, first.status, first.observed) == ("start.finite_weights", "fail", 1)
    assert {trial.status for trial in rest} == {"insufficient"}
    assert {trial.evidence for trial in rest} == {f"not tried, since {first.evidence}"}


@pytest.mark.parametrize("of", [mlp(), cnn(), gpt(AdditiveMask), mlp(Raises)], ids=["mlp", "cnn", "masked", "raises"])
def test_finite_weights_and_buffers_that_harm_nothing_pass(of):
    assert weights_are_finite(of).status == "pass"
