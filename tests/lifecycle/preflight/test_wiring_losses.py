"""Losses that can be low and are wrong: no logarithm, logits that are cut off, a softmax over another axis."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.healthy_fresh import FRESH_HEALTHY
from benchmarks.networks import cnn, convolutions, feed_forward, gpt, mlp
from benchmarks.setup import ForwardOf, Setup, with_targets
from trainworthy.lifecycle.engine.preflight.wiring.logits import logits


def of_images(*layers):
    return lambda: ForwardOf("image", nn.Sequential(*convolutions(), *layers), squeeze=False)


def nll(outputs, targets):
    return functional.nll_loss(outputs, targets, reduction="none")


def likelihood(outputs, targets):
    share = outputs.sigmoid()
    return -(targets * share + (1 - targets) * (1 - share))


def over_time(outputs, targets):
    return nll(outputs.log_softmax(1).transpose(1, 2), targets).mean(1)


def token_probabilities(outputs, targets):
    return nll(outputs.softmax(2).transpose(1, 2), targets).mean(1)


FAULTS = {
    "nll_of_probabilities": (replace(cnn(0), network=of_images(nn.Softmax(1)), loss_fn=nll), "logarithm"),
    "nll_of_sigmoids": (replace(cnn(0), network=of_images(nn.Sigmoid()), loss_fn=nll), "logarithm"),
    "likelihood_by_hand": (replace(mlp(0), loss_fn=likelihood), "logarithm"),
    "probabilities_of_positions": (replace(gpt(0), loss_fn=token_probabilities), "logarithm"),
    "softmax_over_time": (replace(gpt(0), loss_fn=over_time), "positions"),
    "relu_before_softmax": (replace(cnn(0), network=of_images(nn.ReLU())), "ReLU"),
    "clamp_before_softmax": (replace(cnn(0), network=of_images(nn.Hardtanh(0.0, 50.0))), "ReLU"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_loss_that_takes_other_outputs_fails_with_its_cause(name):
    setup, cause = FAULTS[name]
    found = logits(setup.subject())
    assert found.status == "fail", found.evidence
    assert cause in found.cause


class Squeezed(nn.Module):
    """Rectified maps of the classes, averaged over their places: the head of SqueezeNet."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 10, 1), nn.ReLU())

    def forward(self, inputs):
        return self.body(inputs["image"]).mean((2, 3))


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient / (1 + 3 * ctx.saved_tensors[0].abs()) ** 2


class Spikes(nn.Module):
    """Counts of spikes as logits, with a gradient where they are zero too."""

    def __init__(self):
        super().__init__()
        self.body = convolutions()

    def forward(self, inputs):
        return sum(Spike.apply(self.body(inputs["image"]) - level) for level in range(8))


class Excluded(nn.Module):
    """Classes that a row rules out have a logit of -1e9."""

    def __init__(self):
        super().__init__()
        self.body = convolutions()

    def forward(self, inputs):
        return self.body(inputs["image"]).masked_fill(inputs["excluded"], -1e9)


def evidence(outputs, targets):
    """Expected cross-entropy of a Dirichlet distribution."""
    counts = outputs + 1
    return torch.digamma(counts.sum(1)) - torch.digamma(counts.gather(1, targets[:, None]).squeeze(1))


def with_excluded(setup):
    def change(part):
        excluded = torch.rand(len(part.targets), 10, generator=torch.Generator().manual_seed(1)) < 0.3
        excluded[torch.arange(len(excluded)), part.targets] = False
        return replace(part, inputs=part.inputs | {"excluded": excluded})

    return replace(setup, network=Excluded, training=change(setup.training), held_out=change(setup.held_out))


def absolute(outputs, targets):
    return 1 - outputs.gather(1, targets[:, None]).squeeze(1)


HEALTHY = {
    "mean_absolute_error": replace(cnn(0), network=of_images(nn.Softmax(1)), loss_fn=absolute),
    "log_probabilities": replace(cnn(0), network=of_images(nn.LogSoftmax(1)), loss_fn=nll),
    "evidence": replace(cnn(0), network=of_images(nn.ReLU()), loss_fn=evidence),
    "squeezed": replace(cnn(0), network=Squeezed),
    "softplus": replace(cnn(0), network=of_images(nn.Softplus())),
    "spikes": replace(cnn(0), network=Spikes),
    "excluded": with_excluded(cnn(0)),
    "clamp": replace(cnn(0), network=of_images(nn.Hardtanh(-12.0, 12.0))),
    "tokens": gpt(0),
    "lengths_of_vectors": FRESH_HEALTHY["capsules"](0),
    "two_heads_in_one_output": FRESH_HEALTHY["domain_adversarial"](0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_loss_that_fits_its_outputs_passes(name):
    setup = HEALTHY[name]
    found = logits(setup.subject() if isinstance(setup, Setup) else setup)
    assert found.status == "pass", found.evidence


class HalfSquashed(nn.Module):
    """Two heads in one output, of which the first is squashed, and again by the loss."""

    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = feed_forward(12, 32, 32), nn.Linear(32, 1), feed_forward(32, 16, 1)

    def forward(self, inputs):
        x = self.body(inputs["numbers"]).relu()
        return torch.cat([self.first(x).sigmoid(), self.second(x)], 1)


def test_head_that_is_squashed_twice_beside_another_is_told():
    loss = nn.BCEWithLogitsLoss(reduction="none")
    of = replace(
        with_targets(mlp(0), lambda targets: torch.stack([targets, targets], 1)), network=HalfSquashed, predict=None,
        loss_fn=lambda o, t: loss(o, t).sum(1),
    )  # fmt: skip
    found = logits(of.subject())
    assert found.status == "fail", found.evidence


class Functional(nn.Module):
    """Reads its layers' weights without calling the layers; `squash` comes last."""

    def __init__(self, squash):
        super().__init__()
        self.first, self.last, self.squash = nn.Linear(12, 32), nn.Linear(32, 1), squash

    def forward(self, inputs):
        hidden = functional.linear(inputs["numbers"], self.first.weight, self.first.bias).relu()
        return self.squash(functional.linear(hidden, self.last.weight, self.last.bias).squeeze(-1))


@pytest.mark.parametrize(("squash", "status"), [(nn.Identity(), "pass"), (nn.Sigmoid(), "fail")])
def test_layers_that_are_read_and_not_called_are_the_last_ones_too(squash, status):
    found = logits(replace(mlp(0), network=lambda: Functional(squash)).subject())
    assert found.status == status, found.evidence
