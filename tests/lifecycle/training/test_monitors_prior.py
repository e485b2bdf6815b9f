"""What the best answer that looks at no input loses, and where that says nothing."""

import math
from dataclasses import replace

import pytest
import torch

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_dynamics import DYNAMIC
from trainworthy.lifecycle.engine.training.monitors import prior
from trainworthy.lifecycle.engine.training.monitors.prior import prior_loss


def of(subject):
    return prior_loss(subject.model(), subject.training, subject.recipe, subject.plan.batch_size)


def test_prior_of_labels_is_the_entropy_of_their_shares():
    subject = HEALTHY["mlp"](0)
    share = subject.training.targets.mean().item()
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert of(subject) == pytest.approx(entropy, abs=0.01)


@pytest.mark.parametrize(
    "healthy",
    ["autoencoder", "variational", "adversarial", "in_batch_negatives", "declared_imbalance", "mixup"],
    ids=["no labels", "no labels, drawn codes", "labels that say nothing", "rows together", "weights", "augmented"],
)
def test_prior_that_says_nothing_is_none(healthy):
    assert of((HEALTHY | DYNAMIC)[healthy](0)) is None


def test_prior_of_outputs_that_are_too_large_is_none(monkeypatch):
    monkeypatch.setattr(prior, "MOST_NUMBERS", 10_000)
    assert of(HEALTHY["gpt"](0)) is None


def test_prior_leaves_the_training_as_it_was():
    subject = HEALTHY["cnn"](0)
    model = subject.model().train()
    before, drawn = {name: one.clone() for name, one in model.state_dict().items()}, torch.random.get_rng_state()
    assert prior_loss(model, subject.training, subject.recipe, subject.plan.batch_size) is not None
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert model.training
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_prior_of_rows_that_are_not_finite_or_of_a_loss_that_raises_is_none():
    subject = HEALTHY["mlp"](0)
    numbers = subject.training.inputs["numbers"].clone()
    numbers[::50] = float("nan")
    spoiled = replace(subject, training=replace(subject.training, inputs={"numbers": numbers}))
    assert of(spoiled) is None

    def of_a_batch(outputs, targets):
        assert len(outputs) == 32
        return outputs - targets

    assert of(replace(subject, recipe=replace(subject.recipe, loss_fn=of_a_batch))) is None
