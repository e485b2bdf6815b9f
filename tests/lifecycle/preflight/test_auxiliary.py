"""Terms that a network computes itself: held where free outputs are searched, and no shelter for a wrong sign."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.networks import cnn, feed_forward, mlp
from trainworthy.lifecycle.engine.outputs.auxiliary import without_auxiliary
from trainworthy.lifecycle.engine.outputs.best_constant import constant_losses
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.overfit.checks import CHECKS as OVERFIT
from trainworthy.lifecycle.engine.preflight.start.checks import CHECKS as START
from trainworthy.lifecycle.engine.preflight.start.initial_loss import NO_LOWER_BOUND
from trainworthy.lifecycle.spec.preflight import PreflightSpec

ROWS = 128


def bce(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


class Mixture(nn.Module):
    """Experts, and how evenly they are used beside them."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(12, 4), nn.ModuleList(feed_forward(12, 16, 1) for _ in range(4))

    def parts(self, x):
        shares = self.router(x).softmax(1)
        return (torch.cat([expert(x) for expert in self.experts], 1) * shares).sum(1), shares

    def forward(self, inputs):
        logits, shares = self.parts(inputs["numbers"])
        return torch.stack([logits, (shares * shares.log()).sum(1)], 1)


class Balanced(Mixture):
    """The batch's balance as a single number."""

    def forward(self, inputs):
        logits, shares = self.parts(inputs["numbers"])
        return logits, 4 * shares.mean(0).square().sum()


class Codebook(nn.Module):
    """Vector quantisation with a straight-through gradient; the commitment is the last column."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.codes = nn.Parameter(torch.randn(32, 8) * 0.5)
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, inputs):
        z = self.encode(inputs["image"])
        code = self.codes[torch.cdist(z, self.codes).argmin(1)]
        commitment = (code - z.detach()).square().mean(1) + 0.25 * (z - code.detach()).square().mean(1)
        return torch.cat([self.decode(z + (code - z).detach()), commitment[:, None]], 1)


class OwnLoss(nn.Module):
    """Is given the label, and gives each row's loss itself."""

    def __init__(self):
        super().__init__()
        self.body = feed_forward(12, 32, 1)

    def forward(self, inputs):
        return bce(self.body(inputs["numbers"]).squeeze(1), inputs["label"])


def mixture(seed):
    loss = lambda outputs, targets: bce(outputs[:, 0], targets) - 0.01 * outputs[:, 1]
    return replace(mlp(seed), network=Mixture, loss_fn=loss, predict=lambda outputs: torch.sigmoid(outputs[:, 0]))


def balanced(seed):
    loss = lambda outputs, targets: bce(outputs[0], targets) + 0.01 * outputs[1]
    claims = PreflightSpec(rows="together")
    return replace(mlp(seed), network=Balanced, loss_fn=loss, predict=None, claims=claims)


def codebook(seed):
    host = cnn(seed)
    parts = {name: getattr(host, name) for name in ("training", "held_out")}
    parts = {name: replace(part, targets=part.inputs["image"].flatten(1)) for name, part in parts.items()}
    loss = lambda outputs, targets: (outputs[:, :-1] - targets).square().mean(1) + outputs[:, -1]
    return replace(host, network=Codebook, loss_fn=loss, **parts)


def own_loss(seed):
    host = mlp(seed)
    parts = {name: getattr(host, name) for name in ("training", "held_out")}
    parts = {name: replace(part, inputs=part.inputs | {"label": part.targets}) for name, part in parts.items()}
    loss, claims = lambda outputs, targets: outputs, PreflightSpec(labels="unused")
    return replace(host, network=OwnLoss, loss_fn=loss, predict=None, claims=claims, **parts)


@pytest.mark.parametrize("make", [mixture, balanced, codebook, own_loss])
def test_terms_that_the_network_computes_raise_nothing(make):
    trials = run_checks((*START, *OVERFIT), make(0).subject(), device="cpu", not_applicable={})
    assert {one.check: one.evidence for one in trials if one.status not in ("pass", "not_applicable")} == {}
    if make in (mixture, codebook):
        measured = {one.check: one.status for one in trials}
        assert [measured[name] for name in ("start.initial_loss", "overfit.ten_batches")] == ["pass", "pass"]


def test_best_constant_beside_a_term_is_the_prediction_s_own_and_the_mean_term():
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(ROWS, 2, generator=generator), (torch.arange(ROWS) % 4 == 0).float()
    found = constant_losses(lambda o, t: bce(o[:, 0], t) + 0.1 * o[:, 1], outputs, targets)
    assert found.best == pytest.approx(0.5623 + 0.1 * float(outputs[:, 1].mean()), abs=1e-3)


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda o, t: -bce(o[:, 0], t) - 0.01 * o[:, 1],
        lambda o, t: bce(o[:, 0], t) - 0.1 * o[:, 1].square(),
        lambda o, t: -o[:, 0] * (2 * t - 1) + o[:, 1].square(),
    ],
    ids=["likelihood_of_the_wrong_sign", "penalty_of_the_wrong_sign", "score_without_a_bound"],
)
def test_loss_without_a_bound_fails_beside_a_term_too(loss_fn):
    setup = replace(mixture(0), loss_fn=loss_fn, predict=None)
    trials = run_checks(START[:1], setup.subject(), device="cpu", not_applicable={})
    assert trials[0].status == "fail"
    assert trials[0].code == NO_LOWER_BOUND


def test_classes_without_a_row_are_no_auxiliary_terms():
    loss = lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none")
    assert without_auxiliary(loss, torch.randn(ROWS, 60), torch.arange(ROWS) % 20) is loss


def test_term_that_a_learned_weight_scales_is_held_and_the_weight_is_not():
    outputs, targets = torch.rand(ROWS, 3), (torch.arange(ROWS) % 2).float()
    loss = lambda o, t: bce(o[:, 0], t) + o[:, 1] * torch.exp(-o[:, 2]) + o[:, 2]
    held = without_auxiliary(loss, outputs, targets)
    moved = [outputs + torch.tensor(change) for change in ([0.0, 5.0, 0.0], [0.0, 0.0, 5.0])]
    assert held(moved[0], targets).equal(held(outputs, targets))
    assert not held(moved[1], targets).equal(held(outputs, targets))
