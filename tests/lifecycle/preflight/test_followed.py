"""Losses whose value tells no progress: the gradient that the updates follow is not theirs alone."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import energy
from benchmarks.networks import mlp
from benchmarks.setup import ForwardOf
from lifecycle.preflight.claims import PreflightSpec
from lifecycle.preflight.overfit.checks import overfits
from lifecycle.preflight.overfit.fit import fit
from lifecycle.preflight.overfit.followed import APART, slope_of


def share(subject, updates: int = 50) -> float:
    """After a few updates; on 32 rows."""
    data = subject.training.take(torch.arange(32))
    done = fit(subject, data, [torch.arange(32)], lambda loss, done: done >= updates)
    return slope_of(subject, done.state.model, data)


def test_energies_against_samples_of_their_own_have_another_slope():
    assert abs(share(energy(0).subject()) - 1) > 5 * APART


@pytest.mark.parametrize("name", ["autoencoder", "variational", "monte_carlo_dropout", "masked_language_model"])
def test_slope_of_other_losses_is_their_gradient(name):
    assert share(HEALTHY[name](0)) == pytest.approx(1.0, abs=1e-4)


class Game(nn.Module):
    """A score against one whose size is the weights' own, which is held."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(12, 1)

    def forward(self, inputs):
        score = self.layers(inputs["numbers"])
        made = self.layers(0.9 * inputs["numbers"].roll(1, 1)) * self.layers.weight.detach().norm()
        return torch.cat([score, made], 1)


def unlabelled(network, loss_fn, rate: float):
    return replace(
        mlp(0), network=network, loss_fn=loss_fn, predict=None, learning_rate=rate,
        claims=PreflightSpec(labels="unused"),
    ).subject()  # fmt: skip


def apart(outputs, targets):
    return outputs[:, 0] - outputs[:, 1] + 0.5 * outputs.square().sum(1) + 3 * (outputs[:, 0] - 2).relu()


def test_loss_of_a_game_that_falls_a_little_is_insufficient_and_one_that_stays_fails():
    played, still = (overfits(unlabelled(Game, apart, rate)) for rate in (2e-5, 1e-9))
    assert (played.status, still.status) == ("insufficient", "fail"), (played.evidence, still.evidence)


def test_slow_loss_that_is_no_game_fails():
    network = lambda: ForwardOf("numbers", nn.Linear(12, 2), squeeze=False)
    assert overfits(unlabelled(network, apart, 5e-6)).status == "fail"
