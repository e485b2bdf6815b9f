from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.networks import mlp
from benchmarks.planted import PLANTED
from benchmarks.setup import ForwardOf
from lifecycle.preflight.battery import run_checks
from lifecycle.preflight.check import Trial
from lifecycle.preflight.overfit import CHECKS
from lifecycle.training.loop import TrainData


def tried(subject) -> dict[str, Trial]:
    trials = run_checks(CHECKS, subject, device="cpu", not_applicable={})
    return {trial.check: trial for trial in trials}


@pytest.mark.parametrize("name", ["label_smoothing", "survival", "autoencoder", "in_batch_negatives", "probabilities"])
def test_healthy_training_passes(name):
    found = tried(HEALTHY[name](0))
    assert {id: trial.evidence for id, trial in found.items() if trial.status not in ("pass", "not_applicable")} == {}


def test_batch_norm_with_many_accumulated_parts_passes():
    network = lambda: ForwardOf(
        "numbers", nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    )
    found = tried(replace(mlp(0, rows=3000), network=network, batch_size=32, accumulate=32).subject())
    assert {id: trial.evidence for id, trial in found.items() if trial.status not in ("pass", "not_applicable")} == {}


class Blind(nn.Module):
    """The inputs do not reach the output."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(12, 1)

    def forward(self, inputs):
        return self.layers(inputs["numbers"] * 0).squeeze(-1)


class ByPlace(nn.Module):
    """A number for each place in ten batches: the network counts its calls and knows the rows by their place."""

    def __init__(self):
        super().__init__()
        self.body, self.memory, self.calls = nn.Linear(12, 1), nn.Parameter(torch.zeros(10, 32)), 0

    def forward(self, inputs):
        rows = len(inputs["numbers"])
        known = self.memory[self.calls % 10, :rows]
        self.calls += 1
        return self.body(inputs["numbers"]).squeeze(-1) * 0 + 10 * known


def test_network_without_inputs_fails():
    found = tried(replace(mlp(0), network=Blind).subject())
    assert found["overfit.ten_batches"].status == "fail"
    assert found["overfit.zeroed_inputs"].status == "pass"
    assert found["overfit.held_out"].status == "insufficient"


def test_network_that_knows_rows_by_their_place_fails_on_zeroed_inputs():
    assert tried(replace(mlp(0), network=ByPlace).subject())["overfit.zeroed_inputs"].status == "fail"


@pytest.mark.parametrize("name", ["thousandfold_rate", "wrong_sign"])
def test_rate_far_off_and_wrong_sign_do_not_pass(name):
    trial = tried(PLANTED[name][0](0))["overfit.ten_batches"]
    assert trial.status in ("fail", "insufficient")
    assert trial.status == "fail" or trial.required


def test_wrong_sign_fails_where_probabilities_tell_it():
    setup = mlp(0)
    trial = tried(replace(setup, loss_fn=lambda o, t: -setup.loss_fn(o, t)).subject())["overfit.ten_batches"]
    assert trial.status == "fail"
    assert "sign" in trial.cause


def shuffled(data: TrainData) -> TrainData:
    return replace(
        data, targets=data.targets[torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(3))]
    )


def test_training_labels_of_other_rows_fail_on_held_out_rows():
    subject = mlp(0, rows=4000).subject()
    found = tried(replace(subject, training=shuffled(subject.training)))
    assert found["overfit.held_out"].status == "fail" or found["overfit.ten_batches"].status == "fail"


def test_dataset_of_shuffled_labels_does_not_pass_on_held_out_rows():
    subject = mlp(0, rows=6000).subject()
    both = replace(subject, training=shuffled(subject.training), held_out=shuffled(subject.held_out))
    assert tried(both)["overfit.held_out"].status in ("insufficient", "fail")


def test_few_rows_without_a_signal_are_no_alarm_on_held_out_rows():
    network = lambda: ForwardOf("numbers", nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)))
    subject = replace(mlp(0, rows=300), network=network).subject()
    both = replace(subject, training=shuffled(subject.training), held_out=shuffled(subject.held_out))
    assert tried(both)["overfit.held_out"].status in ("not_applicable", "insufficient")
