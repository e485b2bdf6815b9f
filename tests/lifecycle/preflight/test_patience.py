"""How long the overfit checks wait for a network whose steps are small, and what they show of it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.networks import mlp, split, tabular
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.overfit import checks
from trainworthy.lifecycle.engine.preflight.overfit.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.overfit.fit import Fit, planned_updates
from trainworthy.lifecycle.engine.preflight.overfit.patience import (
    LEVEL,
    LONGER,
    MOST_LONGER,
    MOST_STEPS,
    STEPS,
    Patience,
    longer_steps,
)
from trainworthy.lifecycle.engine.training.state import TrainData


def slow(rate: float = 1e-4, epochs: int = 50, width: int = 64) -> Setup:
    """Plain descent by batches of one row under a dropout of a half: small steps, and many of them."""

    def network() -> nn.Module:
        layers = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, width), nn.ReLU(),
                               nn.Dropout(0.5), nn.Linear(width, 1))  # fmt: skip
        return ForwardOf("numbers", layers)

    return replace(
        mlp(0), network=network, optimizer="sgd", learning_rate=rate, batch_size=1, epochs=epochs, weight_decay=0.0,
        warmup=0.0, decay="constant", clip_norm=1e9, **split(tabular(0, 1500)),
    )  # fmt: skip


def tried(setup: Setup):
    return run_checks(CHECKS, setup.subject(), device="cpu", not_applicable={})


@pytest.mark.parametrize(("rate", "epochs"), [(1e-3, 10), (1e-4, 50)])
def test_slow_training_is_judged_by_as_far_as_its_planned_updates_go(rate, epochs):
    first, second = tried(slow(rate, epochs))
    assert first.status == "pass", first.evidence
    assert first.optimizer_steps <= MOST_STEPS + MOST_LONGER
    assert not second.required
    assert second.status in ("pass", "insufficient"), second.evidence


def with_labels(change) -> Setup:
    """Small steps on a table whose training labels, not the held-out ones, are changed."""
    rows = split(tabular(0, 6000))
    layers = lambda: nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
    training = TrainData(rows["training"].inputs, change(rows["training"].targets))
    host = replace(slow(1e-3, 300), network=lambda: ForwardOf("numbers", layers()), batch_size=8)
    return replace(host, **{**rows, "training": training})


def shuffled(targets: torch.Tensor) -> torch.Tensor:
    # One of the draws of which a look at one training with shuffled labels alone was passed.
    return targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(101))]


@pytest.mark.parametrize("change", [shuffled, lambda targets: targets.roll(1)], ids=["shuffled", "of the row before"])
def test_longer_steps_let_no_labels_of_other_rows_pass(change):
    found = run_checks(CHECKS[1:], with_labels(change).subject(), device="cpu", not_applicable={})[0]
    assert found.status == "fail", found.evidence


def test_longer_steps_show_what_steps_that_are_very_small_learn():
    setup = slow(1e-4, 50, width=32)
    found = run_checks(CHECKS[1:], setup.subject(), device="cpu", not_applicable={})[0]
    assert found.status == "pass", found.evidence
    assert "at the declared rate" in found.evidence


class Blind(nn.Module):
    """The inputs do not reach the network."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        return self.network({name: tensor * 0 for name, tensor in inputs.items()})


class Detached(nn.Module):
    """The answers are cut off from the weights."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.own = network, nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        return self.network(inputs).detach() + 0 * self.own


def frozen(network: nn.Module) -> nn.Module:
    for parameter in list(network.parameters())[:-1]:
        parameter.requires_grad_(False)
    return network


BROKEN = {
    "inputs that do not reach it": lambda setup: replace(setup, network=lambda: Blind(setup.network())),
    "a detached loss": lambda setup: replace(setup, network=lambda: Detached(setup.network())),
    "all layers frozen but a bias": lambda setup: replace(setup, network=lambda: frozen(setup.network())),
    "a rate of zero": lambda setup: replace(setup, schedule=lambda step, steps: 0.0),
    "a rate of a thousandth": lambda setup: replace(setup, learning_rate=setup.learning_rate / 1000),
    "an optimizer that ascends": lambda setup: replace(
        setup, build_optimizers=lambda model: [torch.optim.SGD(model.parameters(), lr=1.0, maximize=True)]
    ),
    "a loss of the wrong sign": lambda setup: replace(
        setup, loss_fn=lambda outputs, targets: -setup.loss_fn(outputs, targets)
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_training_with_small_steps_is_stopped(fault):
    first, *_ = tried(BROKEN[fault](slow(1e-3, 10)))
    # A loss without a lowest value has nothing to be held against; start.initial_loss fails for it.
    assert first.status == "fail" or first.required, first.evidence
    assert first.status == "fail" or fault == "a loss of the wrong sign"


def test_planned_updates_count_as_their_rates_do():
    setup = slow(1e-3, 10)
    assert planned_updates(setup.subject()) == pytest.approx(10 * 1200)
    half = replace(setup, schedule=lambda step, steps: 1e-3 * (1 - step / steps))
    assert planned_updates(half.subject()) == pytest.approx(10 * 600, rel=0.01)
    assert planned_updates(replace(setup, schedule=lambda step, steps: 0.0).subject()) == 0


def asked(patience: Patience, loss) -> tuple[float, int]:
    """The loss and the updates after which it is enough; `loss` is that of how far the updates went, and their size."""
    for done in range(10, MOST_STEPS + MOST_LONGER + 10, 10):
        if patience(now := loss(patience.covered + 10 * patience.times, patience.times), done):
            return now, done
    raise AssertionError("never enough")


def test_steps_grow_until_the_loss_is_met_and_go_no_further_than_planned():
    falls = lambda far, times: 0.7 - 2e-5 * far
    patience = Patience(0.7, 0.4, 0.69, 1e5)
    assert asked(patience, falls)[0] <= 0.4
    patience = Patience(0.7, 0.4, 0.69, 5_000)
    assert asked(patience, falls)[0] == pytest.approx(0.6)
    assert patience.covered == pytest.approx(5_000, rel=0.1)
    assert not patience.cut_off
    assert "5,000 are planned" in patience.more(0.6)


@pytest.mark.parametrize("level", [0.7, 0.8])
def test_loss_that_does_not_fall_is_given_up_at_once(level):
    patience = Patience(0.7, 0.4, 0.69, 1e6)
    assert asked(patience, lambda far, times: level) == (level, STEPS)
    assert not patience.cut_off
    assert patience.more(level) == ""


@pytest.mark.parametrize(("before", "cut_off"), [(2e-5, True), (1e-8, False)], ids=["fell", "stood still"])
def test_steps_that_become_too_long_show_nothing_only_where_the_loss_fell_before(before, cut_off):
    patience = Patience(0.7, 0.4, 0.69, 1e6)
    asked(patience, lambda far, times: 5.0 if times > 16 else 0.7 - before * far)
    assert patience.cut_off == cut_off


def test_steps_that_are_too_long_at_once_show_nothing_of_a_loss_that_fell_and_it_is_judged_as_it_was_before():
    patience = Patience(0.7, 0.4, 0.69, 1e6)
    _, done = asked(patience, lambda far, times: 5.0 if times > 1 else 0.7 - 2e-6 * far)
    assert (patience.jumped, patience.cut_off) == (True, True)
    # 100 updates less, those that were too long: how far it went, and how long each step was.
    assert patience.last_good == done - LEVEL == patience.covered
    assert [patience.times_of(update) for update in (1, patience.last_good, patience.last_good + 1)] == [
        1.0,
        1.0,
        LONGER,
    ]


class Unscaled(nn.Module):
    """A line over columns of which one is a hundred times as large: longer steps than declared throw it off."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(12, 1)

    def forward(self, numbers):
        return self.line(torch.cat([100 * numbers[:, :1], numbers[:, 1:]], 1))


def test_healthy_line_that_longer_steps_throw_off_is_not_failed():
    setup = replace(slow(1e-4, 1000), network=lambda: ForwardOf("numbers", Unscaled()), batch_size=8)
    found = checks.overfits(setup.subject())
    assert (found.status, found.required) == ("insufficient", False), found.evidence
    # What this could not tell, a stage does.
    assert found.answered_by == "references"
    # What is told is what the declared steps came to, not what the longer ones made of it.
    assert isinstance(found.observed, float)
    assert found.observed < 10
    assert f"{found.observed:.4f} after" in found.evidence, found.evidence


def test_few_updates_of_much_work_fail_only_if_as_many_as_are_planned_would_not_do():
    state = mlp(0).subject().state()

    def outcome(brought: float, updates: int, ended):
        patience = Patience(0.7, 0.4, 0.69, 1_000)
        patience(0.7 - brought, updates)
        return checks._outcome("evidence", Fit(state, 0.7 - brought, updates, ended), patience, 0.4, 0.7)

    assert outcome(0.01, 100, "work").status == "fail"
    assert outcome(0.05, 100, "work").status == "insufficient"
    assert outcome(0.01, 99, "work").status == "insufficient"
    # Processor time depends on the machine: it shows nothing.
    assert outcome(0.0, 100, "processor_time").status == "insufficient"
    found = [outcome(brought, 100, ended).required for brought in (0.01, 0.05) for ended in ("work", "processor_time")]
    assert not any(found)


def test_longer_steps_of_a_fixed_number_go_no_further_than_planned():
    for planned in (200.0, 300.0, 1_000.0, 1e6):
        times, far = longer_steps(200, planned)
        assert far <= planned
        assert far == pytest.approx(sum(times(done) for done in range(1, 201)))
        assert times(1) == 1.0
    assert longer_steps(200, 100.0)[1] == 200


def test_labels_of_the_row_before_as_an_input_are_said_to_be_no_mistake_of_the_rows():
    """A series whose next label nobody can tell, with the one before it as an input: a lag, or rows that slipped."""
    inputs, _ = tabular(0, 3000)
    labels = torch.randint(0, 2, (3000,), generator=torch.Generator().manual_seed(1)).float()
    numbers = inputs["numbers"].clone()
    numbers[:, 0] = labels.roll(1)
    rows = split(({"numbers": numbers}, labels))
    found = run_checks(CHECKS[1:], replace(mlp(0), **rows).subject(), device="cpu", not_applicable={})[0]
    assert found.status == "insufficient", found.evidence
    assert "with those of 1 row before" in found.evidence
    assert "or an input holds the label of 1 row before, as a lag does" in found.cause
    assert "of a lag nothing is wrong with the rows" in found.fix
