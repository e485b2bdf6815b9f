"""Losses whose value tells no progress: the gradient that the updates follow is not theirs alone."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import Reverses, energy
from benchmarks.networks import mlp
from benchmarks.setup import ForwardOf
from trainworthy.lifecycle.engine.preflight.overfit.checks import overfits
from trainworthy.lifecycle.engine.preflight.overfit.fit import SLOPE_TOLERANCE, by_a_game, fit, slope_of
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def share(subject, updates: int = 50) -> float:
    """After a few updates; on 32 rows."""
    data = subject.training.take(torch.arange(32))
    done = fit(subject, data, [torch.arange(32)], lambda loss, done: done >= updates)
    return slope_of(subject, done.state.model, data)


def test_energies_against_samples_of_their_own_have_another_slope():
    assert abs(share(energy(0).subject()) - 1) > 5 * SLOPE_TOLERANCE


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


class Against(nn.Module):
    """What makes rows is trained against what tells them from real ones."""

    def __init__(self):
        super().__init__()
        self.make, self.tell = nn.Linear(12, 12), nn.Linear(12, 1)

    def forward(self, inputs):
        made = self.make(inputs["numbers"].roll(1, 0))
        return torch.cat([self.tell(inputs["numbers"]), self.tell(Reverses.apply(made))], 1)


class AllTurned(Against):
    def forward(self, inputs):
        made = self.make(inputs["numbers"].roll(1, 0))
        return Reverses.apply(torch.cat([self.tell(inputs["numbers"]), self.tell(made)], 1))


def told_apart(outputs, targets):
    return nn.functional.softplus(-outputs[:, 0]) + nn.functional.softplus(outputs[:, 1])


def test_loss_that_rises_is_insufficient_between_adversaries_and_fails_where_all_gradients_are_turned():
    def judged(network):
        subject = unlabelled(network, told_apart, 0.01)
        rows = torch.arange(32)
        done = fit(subject, subject.training, [rows], lambda loss, done: done >= 10)
        return by_a_game(subject, replace(done, loss=3.0), subject.training.take(rows), 1.4, 0.01, "from 1.4 to 3.0")

    played = judged(Against)
    assert played is not None
    assert (played.status, played.fix != "") == ("insufficient", True)
    assert judged(AllTurned) is None
    assert overfits(unlabelled(AllTurned, told_apart, 0.01)).status == "fail"
