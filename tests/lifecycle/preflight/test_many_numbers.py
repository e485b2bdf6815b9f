"""Searches over the outputs of large masks: each number moves, in bounded memory, and few rows stand for many."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.outputs.free_outputs import MANY, lowest_loss
from trainworthy.lifecycle.engine.preflight.wiring.passes import fewer_of_places
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.segmentation import Segmentation


@pytest.mark.parametrize("points", [(16, 16), (320, 320)])
def test_search_comes_down_from_the_wrong_class_whatever_the_size_of_a_mask(points):
    targets = torch.randint(0, 11, (1, *points), generator=torch.Generator().manual_seed(0))
    start = torch.full((1, 11, *points), 2.0).scatter_(1, targets.unsqueeze(1), -2.0)
    assert (start.numel() > MANY) == (points == (320, 320))
    lowest, at = lowest_loss({0: start}, lambda free: nn.functional.cross_entropy(free[0], targets))
    assert lowest < 0.05
    assert float((at[0].argmax(dim=1) == targets).float().mean()) > 0.99


@pytest.mark.parametrize(
    ("kind", "places", "most", "expected"),
    [
        (None, (90, 120), 256, 256),
        (Segmentation(("a", "b")), (4, 8), 256, 256),
        (Segmentation(("a", "b")), (32, 32), 256, 16),
        (Segmentation(("a", "b")), (512, 512), 256, 2),
        (LanguageModel(128), (128,), 32, 8),
        (LanguageModel(4096), (4096,), 32, 4),
    ],
)
def test_fewer_rows_are_looked_at_where_each_has_many_places(kind, places, most, expected):
    data = TrainData({"numbers": torch.zeros(3, 12)}, torch.zeros(3, *places, dtype=torch.int64))
    subject = replace(mlp(0).subject(), training=data, kind=kind)
    assert fewer_of_places(subject, most, 16 if most == 256 else 4) == expected
