"""Each input is judged by its own columns of what meets the first weights, and not by the largest of all."""

from typing import Any

import pytest
import torch
from torch import nn
from wiring_subjects import ROWS, bce, draws, subject

from trainworthy.lifecycle.engine.preflight.inputs.first_layer import scaled
from trainworthy.lifecycle.engine.training.state import TrainData

X = torch.randn(ROWS, 4, generator=draws())
LABEL, SHOP = (X[:, 0] > 0).float(), torch.randint(0, 6, (ROWS,), generator=draws(1))


class Beside(nn.Module):
    """Numbers beside an embedding in front of one layer."""

    def __init__(self, normed=False):
        super().__init__()
        self.shop, self.norm = nn.Embedding(6, 16), nn.BatchNorm1d(4) if normed else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, inputs):
        return self.layers(torch.cat([self.norm(inputs["x"]), self.shop(inputs["shop"])], 1)).squeeze(1)


class Flagged(Beside):
    """A third input says which numbers are missing: none."""

    def forward(self, inputs):
        return super().forward({**inputs, "x": inputs["x"] + inputs["missing"]})


def beside(x, network: Any = Beside, **more):
    return subject(network, TrainData({"x": x, "shop": SHOP, **more}, LABEL), bce)


def test_numbers_that_embeddings_drown_are_a_warning_that_names_them():
    found = scaled(beside(X / 1000))
    assert (found.status, found.severity, found.code) == ("fail", "warning", "drowned")
    assert found.observed == pytest.approx(0.002, rel=0.3)
    assert "what x gives" in found.evidence


@pytest.mark.parametrize(
    "of",
    [
        beside(X),
        beside(X / 10),
        beside(X / 1000, lambda: Beside(normed=True)),
        beside(X, Flagged, missing=torch.zeros(ROWS, 4)),
    ],
    ids=["standardised", "small", "normed", "flags"],
)
def test_numbers_beside_embeddings_pass(of):
    assert scaled(of).status == "pass"
