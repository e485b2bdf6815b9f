"""Losses whose value tells no progress: how they are known, and what their jumps are."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.monitored import monitored
from benchmarks.monitors import ALL
from benchmarks.networks import HOSTS, mlp
from trainworthy.lifecycle.engine.outputs.directional_derivative import slopes_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.monitors import game
from trainworthy.lifecycle.engine.training.monitors.game import is_game
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.spec.training import MonitorsSpec


def asked(subject: Subject) -> bool:
    torch.manual_seed(subject.recipe.seed)
    return is_game(subject.model(), subject.training, subject.recipe)


@pytest.mark.parametrize("seed", range(3))
def test_networks_against_each_other_are_a_game(seed):
    assert asked(ALL["adversarial"](seed))


@pytest.mark.parametrize(
    "name",
    [
        *HOSTS, "variational", "monte_carlo_dropout", "batch_statistics", "siamese", "reparametrised",
        "stochastic_depth", "gru", "in_batch_negatives", "zero_head", "lora",
    ],
)  # fmt: skip
def test_other_losses_are_none(name, monkeypatch):
    slopes = []

    def measured(model, loss):
        found = slopes_of(model, loss)
        slopes.append(found.along_gradient().of_gradient)
        return found

    monkeypatch.setattr(game, "slopes_of", measured)
    assert not asked(ALL[name](0))
    # It was asked, and nothing was in the way.
    assert slopes
    assert slopes[0] < 0.9 if name == "siamese" else slopes[0] == pytest.approx(1.0, abs=5e-4)


class Codebook(nn.Module):
    """The nearest of some held vectors in the place of its own, and a gradient straight through."""

    def __init__(self):
        super().__init__()
        self.coder, self.decoder = nn.Linear(12, 4), nn.Linear(4, 1)
        self.codes = nn.Parameter(torch.randn(16, 4))

    def forward(self, inputs):
        own = self.coder(inputs["numbers"])
        code = self.codes[torch.cdist(own, self.codes).argmin(1)]
        apart = (code - own.detach()).square().mean(1) + 0.25 * (code.detach() - own).square().mean(1)
        return torch.stack([self.decoder(own + (code - own).detach()).squeeze(1), apart], 1)


def of_codes(outputs, targets):
    return (outputs[:, 0] - targets).square() + outputs[:, 1]


def with_a_held_weight(outputs, targets):
    losses = (outputs - targets).square()
    return losses * losses.detach().sqrt()


def in_single_precision(outputs, targets):
    return (outputs.float() - 1e5 * targets.float()).square()


@pytest.mark.parametrize(
    "changes",
    [
        {"network": Codebook, "loss_fn": of_codes}, {"loss_fn": with_a_held_weight}, {"loss_fn": in_single_precision},
    ],
    ids=["codebook", "held weight", "large targets in float32"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_what_is_held_is_no_game(changes, seed):
    assert not asked(replace(mlp(seed), predict=None, **changes).subject())


def test_model_that_bears_no_float64_is_none_and_keeps_random_numbers_and_weights():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Linear(12, 1)

        def forward(self, inputs):
            return self.layers(inputs["numbers"].float()).squeeze(1)

    assert not asked(replace(mlp(0), network=Single).subject())
    subject = ALL["adversarial"](0)
    model, drawn = subject.model(), torch.get_rng_state()
    before = [parameter.clone() for parameter in model.parameters()]
    assert is_game(model, subject.training, subject.recipe)
    assert torch.equal(drawn, torch.get_rng_state())
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def rising(losses: list[float], norms: list[float]) -> list[Signals]:
    return [
        Signals(step, loss, loss * loss, 32, 0.1, norm, [norm], 0.01, 0.0)
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


# A jump of the loss that stays, and gradients that grow from update to update while the loss rises.
RISES = {
    "loss_spike": rising([1.0 + 0.02 * (step % 3) for step in range(60)] + [9.0] * 20, [1.0] * 80),
    "exploding_gradients": rising([1 + step / 400 for step in range(200)], [1.03**step for step in range(200)]),
}


@pytest.mark.parametrize(("played", "severity"), [(False, "critical"), (True, "warning")])
@pytest.mark.parametrize("monitor", RISES)
def test_rise_of_the_loss_is_a_warning_in_a_game(played, severity, monitor):
    watch = Watch(torch.nn.Linear(1, 1, bias=False), MonitorsSpec(), (), planned_steps=400, game=played)
    state = TrainState(torch.nn.Linear(1, 1, bias=False), ())
    for update in RISES[monitor]:
        state.step = update.step
        watch.judge(state, update)
    (found,) = [alarm for alarm in watch.alarms if alarm.monitor == monitor]
    assert (found.severity, found.rule == "a_game") == (severity, played)


def test_training_of_networks_against_each_other_has_no_critical_alarm():
    found = monitored(ALL["adversarial"](3)).alarms
    assert {(one.monitor, one.severity) for one in found} >= {("loss_spike", "warning")}
    assert not [one for one in found if one.severity == "critical"]
