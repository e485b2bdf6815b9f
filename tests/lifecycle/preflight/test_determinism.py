import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.determinism import CHECKS

NUMBERS = itertools.count()


class Dense(nn.Module):
    """A healthy network with dropout and batch norm."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))

    def noise(self, x) -> torch.Tensor | float:
        return 0.0

    def forward(self, inputs):
        return self.layers(inputs["numbers"] + self.noise(inputs["numbers"])).squeeze(-1)


class OwnNumpy(Dense):
    def noise(self, x):
        return torch.from_numpy(np.random.default_rng().normal(size=x.shape)).float()


class ClassState(Dense):
    calls = 0

    def noise(self, x):
        ClassState.calls += 1
        return 0.1 * ClassState.calls


class OwnGenerator(Dense):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def noise(self, x):
        return torch.rand(x.shape, generator=self.generator)


class Counter(Dense):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def noise(self, x):
        self.calls += 1
        return 0.1 * self.calls


def statuses(network) -> dict[str, str]:
    trials = run_checks(CHECKS, replace(mlp(0), network=network).subject(), device="cpu", not_applicable={})
    return {trial.check.partition(".")[2]: f"{trial.status} {trial.cause}" for trial in trials}


def test_dropout_and_batch_norm_are_equal_bit_for_bit():
    assert statuses(Dense) == {"same_seed": "pass ", "resume": "pass "}


@pytest.mark.parametrize("name", ["several_optimizers", "batch_statistics", "accumulation"])
def test_healthy_training_is_equal_bit_for_bit(name):
    trials = run_checks(CHECKS, HEALTHY[name](0), device="cpu", not_applicable={})
    assert [trial.status for trial in trials] == ["pass", "pass"]
    assert sum(trial.optimizer_steps for trial in trials) <= 2 * 10


@pytest.mark.parametrize("network", [OwnNumpy, ClassState])
def test_source_that_no_seed_reaches_fails_same_seed(network):
    assert statuses(network)["same_seed"].startswith("fail")


def test_weights_that_no_seed_reaches_are_named():
    def network():
        model = Dense()
        nn.init.constant_(model.get_parameter("layers.0.bias"), next(NUMBERS))
        return model

    subject = replace(mlp(0), network=network).subject()
    (trial, _) = run_checks(CHECKS, subject, device="cpu", not_applicable={})
    assert trial.status == "fail"
    assert "layers.0.bias" in trial.evidence


@pytest.mark.parametrize(("network", "lost"), [(OwnGenerator, "generator"), (Counter, "calls")])
def test_state_that_no_checkpoint_holds_fails_resume_and_is_named(network, lost):
    found = statuses(network)
    assert found["same_seed"].startswith("pass")
    assert found["resume"].startswith("fail")
    assert lost in found["resume"]
