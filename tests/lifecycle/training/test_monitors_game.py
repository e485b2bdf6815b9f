"""Losses whose value tells no progress: how they are known, and what their jumps are."""

from dataclasses import replace

import pytest
import torch
from made_signals import told
from torch import nn

from benchmarks.monitored import monitored
from benchmarks.monitors import ALL
from benchmarks.networks import HOSTS, mlp
from lifecycle.preflight.subject import Subject
from lifecycle.training.monitors.diagnosis import Context, name_of, named_cause
from lifecycle.training.monitors.game import is_game
from lifecycle.training.monitors.signals import Signals
from lifecycle.training.monitors.spikes import Spikes


def asked(subject: Subject) -> bool:
    torch.manual_seed(subject.recipe.seed)
    return is_game(subject.model(), subject.training, subject.recipe)


@pytest.mark.parametrize("seed", range(3))
def test_networks_against_each_other_are_a_game(seed):
    assert asked(ALL["adversarial"](seed))


@pytest.mark.parametrize(
    "name",
    [
        *HOSTS, "variational", "monte_carlo_dropout", "batch_statistics", "mixture_of_experts", "reparametrised",
        "stochastic_depth", "gru", "in_batch_negatives", "zero_head", "lora",
    ],
)  # fmt: skip
def test_other_losses_are_none(name):
    assert not asked(ALL[name](0))


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


@pytest.mark.parametrize(("game", "severity"), [(False, "critical"), (True, "warning")])
def test_jump_that_stays_is_a_warning_in_a_game(game, severity):
    losses = [1.0 + 0.02 * (step % 3) for step in range(60)] + [9.0] * 20
    updates = [Signals(step, one, one * one, 32, 0.1, 1.0, [1.0], 0.01, 0.0) for step, one in enumerate(losses)]
    (found,) = [one for one in told(Spikes(game), updates) if one.monitor == "loss_spike"]
    assert found.severity == severity
    cause, _, _ = named_cause(found, context=Context(game=game))
    assert (name_of(cause) == "a_game") == game


def test_training_of_networks_against_each_other_has_no_critical_alarm():
    found = monitored(ALL["adversarial"](3)).alarms
    assert {(one.monitor, one.severity) for one in found} >= {("loss_spike", "warning")}
    assert not [one for one in found if one.severity == "critical"]
