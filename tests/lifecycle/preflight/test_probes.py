"""What a loss refuses of outputs that checks made up says nothing of the use case."""

import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import mlp, pictures, subject

from trainworthy.lifecycle.engine.outputs import best_constant
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.start.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.wiring.output_range import reach
from trainworthy.lifecycle.engine.training.state import TrainData

INITIAL_LOSS = next(check for check in CHECKS if check.id == "start.initial_loss")


def initial_loss(of):
    (trial,) = run_checks([INITIAL_LOSS], of, device="cpu", not_applicable={})
    return trial


class Variational(nn.Module):
    """Probabilities of the pixels, means and logarithms of variances, side by side in one tensor."""

    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, inputs):
        hidden = self.encode(inputs["image"].flatten(1)).relu()
        mean, spread = self.mean(hidden), self.spread(hidden)
        drawn = mean + torch.randn_like(mean) * (spread / 2).exp() if self.training else mean
        return torch.cat([torch.sigmoid(self.decode(drawn)), mean, spread], 1)


def evidence_bound(outputs, targets):
    pixels, mean, spread = outputs.split((64, 4, 4), 1)
    rebuilt = functional.binary_cross_entropy(pixels, targets.flatten(1), reduction="none").sum(1)
    return rebuilt - 0.5 * (1 + spread - mean.square() - spread.exp()).sum(1)


def variational():
    image = torch.sigmoid(pictures().inputs["image"])
    return subject(Variational, TrainData({"image": image}, image), evidence_bound)


def refuses_other_numbers(outputs, targets):
    if float(outputs.detach().abs().max()) == 0 or float(outputs.detach().std()) == 0:
        raise RuntimeError("no such outputs")
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def refuses_all(outputs, targets):
    raise RuntimeError("no such outputs")


def test_probabilities_beside_other_numbers_are_measured_within_what_the_network_reaches():
    of = variational()
    low, high = (end.flatten()[:64] for end in reach(of)[0])
    assert (float(low.min()), float(high.max())) == (0.0, 1.0)
    assert initial_loss(of).status == "pass"


def test_loss_that_refuses_what_was_tried_is_insufficient_and_stops_nothing():
    found = initial_loss(mlp(loss_fn=refuses_other_numbers))
    assert (found.status, found.code, found.required) == ("insufficient", "refused", False)
    assert "RuntimeError: no such outputs" in found.evidence


def test_loss_that_refuses_the_networks_own_outputs_stays_an_error():
    assert initial_loss(mlp(loss_fn=refuses_all)).status == "error"


def test_fault_of_ours_in_a_probe_stays_an_error(monkeypatch):
    def broken(*args):
        raise KeyError("ours")

    monkeypatch.setattr(best_constant, "tree_unflatten", broken)
    # The fault comes up through Trainworthy alone, and not through this file.
    monkeypatch.setattr("trainworthy.lifecycle.gates.trials.is_own_fault", lambda error: isinstance(error, KeyError))
    found = initial_loss(mlp())
    assert (found.status, "own code" in found.cause) == ("error", True)
