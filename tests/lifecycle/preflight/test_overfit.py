from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.networks import drawn, feed_forward, mlp, scores, split
from benchmarks.planted import PLANTED
from benchmarks.setup import ForwardOf
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.learning_rate import ASCENDS
from trainworthy.lifecycle.engine.preflight.overfit import fit as overfit_fit
from trainworthy.lifecycle.engine.preflight.overfit.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.overfit.held_out import NETWORK, learns_for_unseen_rows
from trainworthy.lifecycle.engine.preflight.wiring.modes import evaluation_repeats
from trainworthy.lifecycle.engine.preflight.wiring.reach import uses_inputs
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.protocol.trial import Trial


def tried(subject) -> dict[str, Trial]:
    trials = run_checks(CHECKS, subject, device="cpu", not_applicable={})
    return {trial.check: trial for trial in trials}


@pytest.mark.parametrize(
    "name", ["label_smoothing", "survival", "autoencoder", "in_batch_negatives", "probabilities", "declared_imbalance"]
)
def test_healthy_training_passes(name):
    found = tried(HEALTHY[name](0))
    assert {id: trial.evidence for id, trial in found.items() if trial.status not in ("pass", "not_applicable")} == {}


def test_held_out_rows_that_few_updates_tell_nothing_of_are_answered_by_the_stages(monkeypatch):
    monkeypatch.setattr(overfit_fit, "MOST_WORK", 3e7)
    found = learns_for_unseen_rows(mlp(0).subject())
    assert "no more than 4 of 200 were tried" in found.evidence
    assert (found.status, found.answered_by) == ("insufficient", "references")


def test_batch_norm_with_many_accumulated_parts_passes():
    network = lambda: ForwardOf(
        "numbers", nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    )
    found = tried(replace(mlp(0, rows=3000), network=network, batch_size=32, accumulate=32).subject())
    assert {id: trial.evidence for id, trial in found.items() if trial.status not in ("pass", "not_applicable")} == {}


class Rebuilding(nn.Module):
    """Logits, and the inputs rebuilt beside them."""

    def __init__(self):
        super().__init__()
        self.body, self.label, self.inputs = nn.Linear(12, 16), nn.Linear(16, 1), nn.Linear(16, 12)

    def forward(self, inputs):
        hidden = self.body(inputs["numbers"]).relu()
        return self.label(hidden).squeeze(-1), self.inputs(hidden), inputs["numbers"]


def rebuilding_loss(outputs, targets):
    logits, rebuilt, inputs = outputs
    label = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return label + (rebuilt - inputs).square().mean(1)


def test_loss_that_rebuilds_the_inputs_beside_the_labels_is_overfitted():
    setup = replace(mlp(0), network=Rebuilding, loss_fn=rebuilding_loss, predict=None)
    assert tried(setup.subject())["overfit.ten_batches"].status == "pass"


class Flat(nn.Module):
    """Logits of all positions in one dimension, (N · T, V)."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 24), nn.Linear(24, 20)

    def forward(self, inputs):
        return self.head(self.embed(inputs["tokens"])).flatten(0, 1)


def flat_loss(outputs, targets):
    losses = nn.functional.cross_entropy(outputs, targets.flatten(), reduction="none")
    return losses.unflatten(0, targets.shape).mean(1)


def test_flat_sequences_are_learned():
    tokens = torch.randint(0, 20, (400, 8), generator=torch.Generator().manual_seed(0))
    rows = TrainData({"tokens": tokens}, (tokens + 3) % 20)
    setup = replace(mlp(0), network=Flat, loss_fn=flat_loss, predict=None, training=rows, held_out=rows, groups=None)
    found = tried(replace(setup, learning_rate=1e-2).subject())
    assert {id: trial.evidence for id, trial in found.items() if trial.status != "pass"} == {}


def test_outputs_without_rows_have_no_yardstick():
    class TimeFirst(Flat):
        def forward(self, inputs):
            return self.head(self.embed(inputs["tokens"])).movedim(1, 0)

    tokens = torch.randint(0, 20, (400, 7), generator=torch.Generator().manual_seed(0))
    rows = TrainData({"tokens": tokens}, (tokens + 3) % 20)
    loss = lambda outputs, targets: flat_loss(outputs.movedim(0, 1).flatten(0, 1), targets)
    setup = replace(mlp(0), network=TimeFirst, loss_fn=loss, predict=None, training=rows, held_out=rows, groups=None)
    found = tried(replace(setup, learning_rate=1e-2).subject())
    assert found["overfit.ten_batches"].status == "not_applicable"
    assert found["overfit.held_out"].status == "pass"


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
        known = self.memory[self.calls % 10, torch.arange(len(inputs["numbers"])) % 32]
        self.calls += 1
        return self.body(inputs["numbers"]).squeeze(-1) * 0 + 10 * known


def test_network_without_inputs_fails():
    found = tried(replace(mlp(0), network=Blind).subject())
    assert found["overfit.ten_batches"].status == "fail"
    assert found["overfit.held_out"].status == "insufficient"


def test_network_that_knows_rows_by_their_place_uses_no_input_and_answers_otherwise_each_time():
    subject = replace(mlp(0), network=ByPlace).subject()
    assert {uses_inputs(subject).status, evaluation_repeats(subject).status} == {"fail"}


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


def test_optimizer_that_ascends_fails_with_its_sign_as_the_cause():
    ascends = lambda model: [torch.optim.AdamW(model.parameters(), lr=5e-3, maximize=True)]
    trial = tried(replace(mlp(0), build_optimizers=ascends).subject())["overfit.ten_batches"]
    assert (trial.status, trial.cause) == ("fail", ASCENDS[0])


def shuffled(data: TrainData) -> TrainData:
    return replace(
        data, targets=data.targets[torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(3))]
    )


class Line(nn.Module):
    """A linear model, or one that reads the row before."""

    def __init__(self, before):
        super().__init__()
        self.before, self.layer = before, nn.Linear(12, 1)

    def forward(self, inputs):
        return self.layer(inputs["numbers"].roll(int(self.before), 0)).squeeze(-1)


def test_training_labels_of_other_rows_fail_on_held_out_rows():
    subject = mlp(0, rows=4000).subject()
    found = tried(replace(subject, training=shuffled(subject.training)))
    assert found["overfit.held_out"].status == "fail" or found["overfit.ten_batches"].status == "fail"


@pytest.mark.parametrize(("planted", "code"), [("network", NETWORK), ("labels", "")])
def test_line_over_the_training_rows_tells_a_wrong_network_from_wrong_labels(planted, code):
    subject = replace(mlp(0, rows=4000), network=lambda: Line(before=planted == "network")).subject()
    if planted == "labels":
        subject = replace(subject, training=replace(subject.training, targets=1 - subject.training.targets))
    found = learns_for_unseen_rows(subject)
    assert (found.status, found.code) == ("fail", code), found.evidence
    assert ("network" in found.cause) is (planted == "network")


def test_dataset_of_shuffled_labels_does_not_pass_on_held_out_rows():
    subject = mlp(0, rows=6000).subject()
    both = replace(subject, training=shuffled(subject.training), held_out=shuffled(subject.held_out))
    trial = tried(both)["overfit.held_out"]
    assert (trial.status, trial.answered_by) == ("insufficient", "references"), trial.evidence


def test_few_rows_without_a_signal_are_no_alarm_on_held_out_rows():
    network = lambda: ForwardOf("numbers", nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)))
    subject = replace(mlp(0, rows=300), network=network).subject()
    both = replace(subject, training=shuffled(subject.training), held_out=shuffled(subject.held_out))
    assert tried(both)["overfit.held_out"].status in ("not_applicable", "insufficient")


class Ordered(nn.Module):
    """Four cuts less a score: five grades in order. At outputs of zero all cuts are one."""

    def __init__(self):
        super().__init__()
        self.body, self.first = feed_forward(12, 32, 1), nn.Parameter(torch.tensor(-1.5))
        self.gaps = nn.Parameter(torch.zeros(3))

    def forward(self, inputs):
        cuts = torch.cat([self.first[None], self.first + nn.functional.softplus(self.gaps).cumsum(0)])
        return cuts - self.body(inputs["numbers"])


def clamped(outputs, targets):
    ends = torch.zeros(len(outputs), 1), torch.ones(len(outputs), 1)
    below = torch.cat([ends[0], outputs.sigmoid(), ends[1]], 1)
    return -below.diff(dim=1).gather(1, targets[:, None]).squeeze(1).clamp_min(1e-6).log()


def test_grades_by_cuts_with_clamped_probabilities_are_learned():
    x, score, noise = scores(0, 1500)
    grades = torch.bucketize(score + 0.3 * torch.logit(noise, eps=1e-4), torch.tensor([-1.0, -0.3, 0.3, 1.0]))
    rows = split(({"numbers": x}, grades))
    found = tried(replace(mlp(0), network=Ordered, loss_fn=clamped, predict=None, **rows).subject())
    assert {id: trial.evidence for id, trial in found.items() if trial.status != "pass"} == {}


@pytest.mark.parametrize("shift", [1, -2])
def test_training_labels_of_a_row_nearby_fail_with_the_shift_told(shift):
    setup = mlp(0)
    moved = replace(setup.training, targets=setup.training.targets.roll(shift))
    trial = tried(replace(setup, training=moved).subject())["overfit.held_out"]
    assert trial.status == "fail", trial.evidence
    assert f"{abs(shift)} row{'s' * (abs(shift) > 1)} {'after' if shift > 0 else 'before'}" in trial.evidence


def test_labels_of_the_row_before_in_both_parts_are_told_and_may_be_a_forecast():
    setup = mlp(0)
    parts = {name: getattr(setup, name) for name in ("training", "held_out")}
    rolled = {name: replace(part, targets=part.targets.roll(1)) for name, part in parts.items()}
    trial = tried(replace(setup, **rolled).subject())["overfit.held_out"]
    assert (trial.status, trial.answered_by) == ("insufficient", ""), "no stage looks at the rows beside a row"
    assert "moved against the rows" in trial.cause


def test_forecast_of_a_series_whose_rows_hold_the_labels_before_passes():
    noise, series = torch.randn(1600, generator=drawn(0)), torch.zeros(1600)
    for step in range(1, 1600):
        series[step] = 0.6 * series[step - 1] + noise[step]
    series = series / series.std()
    rows = split(({"numbers": torch.stack([series[lag : lag + 1500] for lag in range(6)], 1)}, series[6:1506]))
    network = lambda: ForwardOf("numbers", feed_forward(6, 32, 1))
    setup = replace(mlp(0), network=network, loss_fn=nn.MSELoss(reduction="none"), predict=None, **rows)
    assert tried(setup.subject())["overfit.held_out"].status == "pass"
