"""Passes of so few rows that a batch norm refuses them, or takes its statistics of next to nothing."""

from dataclasses import replace

import pytest
from torch import nn
from wiring_subjects import CNN, MLP, cnn, mlp

from trainworthy.lifecycle.engine.preflight.start.reductions import micro_batches


class Normed(MLP):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def hidden(self, x):
        return self.second(self.norm(self.first(x))).relu()


class Kept(CNN):
    """Running statistics of a trained start, which training keeps."""

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class Broken(MLP):
    def forward(self, inputs):
        raise ValueError("at any number of rows")


def in_parts(of, parts):
    return replace(of, recipe=replace(of.recipe, accumulate=parts))


@pytest.mark.parametrize(
    "of",
    [in_parts(mlp(Normed), 32), replace(mlp(Normed), fewest_rows=1), in_parts(replace(mlp(Normed), fewest_rows=6), 4)],
    ids=["accumulated", "smoke", "both"],
)
def test_pass_of_one_row_that_a_batch_norm_refuses_fails(of):
    found = micro_batches(of)
    assert (found.status, found.code, found.observed, found.severity) == ("fail", "rows_refused", 1, None)


@pytest.mark.parametrize(("parts", "rows"), [(16, 2), (32, 1)])
def test_batch_norm_of_fewer_than_four_rows_is_a_warning(parts, rows):
    found = micro_batches(in_parts(cnn(), parts))
    assert (found.status, found.code, found.observed, found.severity) == ("fail", "few_rows_a_norm", rows, "warning")


@pytest.mark.parametrize(
    "of",
    [
        in_parts(cnn(), 8),
        in_parts(cnn(Kept), 16),
        in_parts(cnn(lambda: CNN(lambda n: nn.GroupNorm(2, n))), 16),
        in_parts(mlp(), 32),
    ],
    ids=["four_rows", "kept_statistics", "group_norm", "no_norm"],
)
def test_few_rows_without_a_norm_of_them_pass(of):
    assert micro_batches(of).status == "pass"


def test_network_that_raises_whatever_the_rows_is_not_told_as_too_few():
    with pytest.raises(ValueError, match="at any number"):
        micro_batches(in_parts(mlp(Broken), 32))
