"""Preflight of a focal loss: the loss must be -log p of what predict gives; anything else is told."""

from dataclasses import replace

import pytest
import torch
from configured import network, subject, tried
from torch.nn import functional

ID = "focal_loss"


def logits(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")


def smoothed(outputs, targets):
    return logits(outputs, 0.9 * targets + 0.05)


def squared(outputs, targets):
    return (torch.sigmoid(outputs.squeeze(1)) - targets).square()


def weighted(outputs, targets):
    return logits(outputs, targets) * (1 + 4 * targets)


def two_classes(outputs, targets):
    both = torch.cat([torch.zeros_like(outputs), outputs], dim=1)
    return functional.cross_entropy(both, targets.long(), reduction="none")


def asked(loss_fn, gamma=2.0, augment=None):
    seen = subject(network(), focal_gamma=gamma, augment=augment)
    seen = replace(seen, recipe=replace(seen.recipe, loss_fn=loss_fn), predict=lambda o: torch.sigmoid(o.squeeze(1)))
    return tried(ID, seen)


@pytest.mark.parametrize("loss_fn", [logits, two_classes])
def test_plain_log_losses_pass(loss_fn):
    assert asked(loss_fn).status == "pass"


@pytest.mark.parametrize("loss_fn", [smoothed, squared, weighted])
def test_losses_that_are_no_log_likelihood_fail(loss_fn):
    trial = asked(loss_fn)
    assert trial.status == "fail"
    assert "where predict gives" in trial.evidence


def test_mixed_labels_fail():
    trial = asked(logits, augment=lambda inputs, targets, generator: (inputs, 0.7 * targets + 0.3 * targets.flip(0)))
    assert trial.status == "fail"
    assert "labels between 0 and 1" in trial.evidence


def test_training_without_a_focal_loss_is_not_judged():
    assert asked(squared, gamma=0.0).status == "not_applicable"
    no_predict = subject(network(), focal_gamma=2.0)
    assert tried(ID, no_predict).status == "insufficient"
