from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.networks import cnn, mlp, shapes, split
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.wiring.predictions import predictions
from trainworthy.lifecycle.tasks.segmentation import Segmentation

BINARY = nn.functional.binary_cross_entropy_with_logits


def smoothed(outputs, targets):
    return BINARY(outputs, targets * 0.6 + 0.2, reduction="none")


def hinge(outputs, targets):
    return (1 - outputs * (2 * targets - 1)).clamp(min=0)


def two_classes(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets.long(), reduction="none")


def two_outputs():
    return ForwardOf("numbers", nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2)), squeeze=False)


def probabilities():
    return ForwardOf("numbers", nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()))


HEALTHY = {
    "plain": {},
    "smoothed": {"loss_fn": smoothed},
    "hinge": {"loss_fn": hinge},
    "two_classes": {
        "network": two_outputs, "loss_fn": two_classes, "predict": lambda outputs: outputs.softmax(dim=1)[:, 1],
    },
    "probabilities": {
        "network": probabilities, "loss_fn": nn.BCELoss(reduction="none"), "predict": lambda outputs: outputs,
    },
}  # fmt: skip
PLANTED = {
    "sigmoid_twice": {"predict": lambda outputs: torch.sigmoid(torch.sigmoid(outputs))},
    "softmax_over_one": {"predict": lambda outputs: outputs.unsqueeze(1).softmax(dim=1)[:, 0]},
    "other_sign": {"predict": lambda outputs: torch.sigmoid(-outputs)},
    "other_class": HEALTHY["two_classes"] | {"predict": lambda outputs: outputs.softmax(dim=1)[:, 0]},
    "rounded": {"predict": lambda outputs: (torch.sigmoid(outputs) > 0.5).float()},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_predictions_that_mean_what_the_loss_means_pass(name):
    found = predictions(replace(mlp(0), **HEALTHY[name]).subject())
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize("name", PLANTED)
def test_predictions_that_mean_something_else_fail(name):
    found = predictions(replace(mlp(0), **PLANTED[name]).subject())
    assert found.status == "fail", found.evidence


def test_predictions_of_ten_classes_are_not_judged():
    assert predictions(cnn(0).subject()).status == "not_applicable"


def masks_at_half_the_size(predict):
    """Outputs of 8 × 8 for masks of 16 × 16: the loss looks at every other pixel."""
    inputs, targets = shapes(0)
    (name,) = inputs

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Conv2d(1, 2, 3, padding=1, stride=2)

        def forward(self, inputs):
            return self.layers(inputs[name])

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets[:, ::2, ::2], reduction="none").mean(dim=(1, 2))

    masks = targets.reshape(len(targets), 16, 16).long()
    setup = Setup(network=Half, loss_fn=loss, seed=0, predict=predict, **split((inputs, masks)))
    return replace(setup.subject(), kind=Segmentation(("ground", "shape")))


def large_masks(loss_fn, predict):
    """Masks of 96 x 128 points and nine classes, the last of them rare, and a network that sees one point."""
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(0, 8, (72, 12, 16), generator=generator).repeat_interleave(8, 1).repeat_interleave(8, 2)
    masks[:, 40:44, 60:63] = 8
    setup = Setup(
        network=lambda: ForwardOf("picture", nn.Conv2d(3, 9, 1), squeeze=False), loss_fn=loss_fn, seed=0,
        predict=predict,
        **split(({"picture": torch.randn(72, 3, 96, 128, generator=generator)}, masks)),
    )  # fmt: skip
    return replace(setup.subject(), kind=Segmentation(tuple("abcdefghi")))


def pixels(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none").mean(dim=(1, 2))


def pixels_and_overlap(outputs, targets):
    shares = outputs.softmax(dim=1)
    known = nn.functional.one_hot(targets, outputs.shape[1]).permute(0, 3, 1, 2).float()
    both, either = (shares * known).sum((2, 3)), shares.sum((2, 3)) + known.sum((2, 3))
    return pixels(outputs, targets) + 0.5 * (1 - ((2 * both + 1) / (either + 1)).mean(dim=1))


def numbers_of_classes(outputs, targets):
    mean = (outputs.softmax(dim=1) * torch.arange(9.0).reshape(1, 9, 1, 1)).sum(dim=1)
    return (mean - targets).square().mean(dim=(1, 2))


def without_one_class(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=2).mean(dim=(1, 2))


@pytest.mark.parametrize("loss_fn", [pixels, pixels_and_overlap])
def test_predictions_of_large_masks_pass(loss_fn):
    found = predictions(large_masks(loss_fn, lambda outputs: outputs.softmax(dim=1)))
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    ("loss_fn", "predict", "cause"),
    [
        (pixels, lambda outputs: outputs.flip(1).softmax(dim=1), "different orders"),
        (pixels, lambda outputs: outputs.softmax(dim=1).softmax(dim=1), ""),
        (numbers_of_classes, lambda outputs: outputs.softmax(dim=1), "numbers of classes"),
        (without_one_class, lambda outputs: outputs.softmax(dim=1), "no gradient from class c: an ignore_index"),
    ],
)
def test_predictions_of_large_masks_that_mean_something_else_fail(loss_fn, predict, cause):
    found = predictions(large_masks(loss_fn, predict))
    assert (found.status, cause in found.cause) == ("fail", True), found


def test_predictions_of_masks_at_half_the_size_are_held_against_the_nearest_pixels():
    assert predictions(masks_at_half_the_size(lambda outputs: outputs.softmax(dim=1))).status == "pass"
    other = predictions(masks_at_half_the_size(lambda outputs: outputs.flip(1).softmax(dim=1)))
    assert other.status == "fail"
    assert "different orders" in other.cause
