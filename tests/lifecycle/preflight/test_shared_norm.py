"""One batch norm at two places is a warning where its calls see other distributions, and none for twins."""

import torch
from torch import nn
from wiring_subjects import MLP, bce, draws, mlp, subject, trial

from trainworthy.lifecycle.engine.preflight.wiring.modes import shared_norm
from trainworthy.lifecycle.engine.training.state import TrainData


class Shared(MLP):
    """The norm behind both layers, or one behind each."""

    def __init__(self, shared=True):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.other = self.norm if shared else nn.BatchNorm1d(16)

    def hidden(self, x):
        return self.other(self.second(self.norm(self.first(x)).relu())).relu()


class Twins(nn.Module):
    """One encoder for both of a pair."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, inputs):
        return (self.encode(inputs["left"]) * self.encode(inputs["right"])).sum(1)


def test_batch_norm_of_two_distributions_is_a_warning_and_one_for_each_is_none():
    found = trial(mlp(Shared), "modes")
    assert (found.status, found.severity, found.code) == ("fail", "warning", "shared_norm")
    assert trial(mlp(lambda: Shared(shared=False)), "modes").status == "pass"


def test_twins_of_one_kind_of_rows_are_healthy():
    left, right = torch.randn(2, 256, 4, generator=draws()).unbind()
    data = TrainData({"left": left, "right": right}, (left * right).sum(1).gt(0).float())
    assert shared_norm(subject(Twins, data, bce)) is None
