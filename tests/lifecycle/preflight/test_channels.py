"""Pictures with channels last in a convolution that wants them first."""

import pytest
import torch
from torch import nn
from wiring_subjects import CLASSES, ROWS, cross_entropy, draws, subject

from trainworthy.lifecycle.engine.preflight.inputs.channels import channels_first
from trainworthy.lifecycle.engine.training.state import TrainData


class Convolved(nn.Module):
    def __init__(self, channels, permuted=False):
        super().__init__()
        self.first, self.head, self.permuted = nn.Conv2d(channels, 8, 3, padding=1), nn.Linear(8, CLASSES), permuted

    def forward(self, inputs):
        image = inputs["image"].permute(0, 3, 1, 2) if self.permuted else inputs["image"]
        return self.head(self.first(image).relu().mean((2, 3)))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, CLASSES)

    def forward(self, inputs):
        return self.head(inputs["image"].flatten(1))


def smooth():
    """Pictures (N, 8, 8, 3) that change slowly along both sides."""
    coarse = torch.randn(ROWS, 3, 3, 3, generator=draws())
    return nn.functional.interpolate(coarse, size=8, mode="bilinear").permute(0, 2, 3, 1).contiguous()


def of(network, image):
    return subject(network, TrainData({"image": image}, torch.arange(ROWS) % CLASSES), cross_entropy)


def test_pictures_with_channels_last_in_a_convolution_are_a_warning():
    found = channels_first(of(lambda: Convolved(8), smooth()))
    assert found.status == "fail"
    assert isinstance(found.observed, float)
    assert found.observed > 0.2


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (of(lambda: Convolved(3, permuted=True), smooth()), "pass"),
        (of(Flat, smooth()), "pass"),
        (of(lambda: Convolved(8), torch.randn(ROWS, 8, 8, 3, generator=draws())), "pass"),
        (of(lambda: Convolved(8), smooth()[:, torch.randperm(8, generator=draws())]), "pass"),
        (of(lambda: Convolved(3), smooth().permute(0, 3, 1, 2).contiguous()), "not_applicable"),
    ],
    ids=["permuted", "flat", "unordered", "channels_in_any_order", "channels_first"],
)
def test_other_convolutions_of_pictures_pass(made, status):
    assert channels_first(made).status == status
