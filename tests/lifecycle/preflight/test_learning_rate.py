import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import FRESH_HEALTHY, slow_temperature
from benchmarks.networks import cnn, mlp, split
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.learning_rate import CHECKS, TOO_LARGE
from trainworthy.lifecycle.gates.learning_rate import suggested_range

ODD = ("fine_tuning", "batch_of_one", "several_optimizers", "restarts", "noisy_regression", "in_batch_negatives")


def tried(setup):
    subject = setup.subject() if isinstance(setup, Setup) else setup
    (trial,) = run_checks(CHECKS, subject, device="cpu", not_applicable={})
    return trial


def sgd(setup: Setup, rate: float) -> Setup:
    return replace(setup, optimizer="sgd", learning_rate=rate)


TUNED = {"mlp": mlp(3), "mlp sgd": sgd(mlp(3), 0.3), "cnn sgd": sgd(cnn(3), 0.1)}


def times(name: str, factor: float) -> Setup:
    return replace(TUNED[name], learning_rate=TUNED[name].learning_rate * factor)


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_rate_within_ten_times_of_a_tuned_one_does_not_fail(name, factor):
    trial = tried(times(name, factor))
    assert trial.status == "pass" or trial.severity == "warning", trial.evidence
    assert factor != 1.0 or trial.status == "pass", trial.evidence


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize(("factor", "cause"), [(1e-4, "too small"), (1e-3, "too small"), (100, "too large")])
def test_rate_that_is_far_off_fails_with_the_side_named(name, factor, cause):
    trial = tried(times(name, factor))
    assert (trial.status, trial.severity) == ("fail", "error"), trial.evidence
    assert cause in trial.cause


@pytest.mark.parametrize("name", ODD)
def test_healthy_odd_trainings_pass(name):
    trial = tried(HEALTHY[name](5))
    assert trial.status == "pass", trial.evidence


def test_rates_are_tried_in_at_most_45_updates_and_the_curve_is_kept():
    setup = mlp(0)
    trial = tried(setup)
    assert trial.optimizer_steps <= 45
    assert all(rate > 0 for rate, _ in trial.curve)
    low, high = suggested_range(trial.curve)
    assert low < setup.learning_rate < high
    assert trial.observed == setup.learning_rate


def test_advised_rate_is_the_upper_end_of_the_range_that_is_worth_trying():
    fix = tried(replace(mlp(0), learning_rate=1e-6)).fix
    advised = fix.removeprefix("declare a rate of about ").partition(";")[0]
    assert fix.endswith(f" to {advised}")


def test_in_the_place_of_a_rate_that_is_too_large_the_middle_of_that_range_is_advised():
    fix = tried(replace(mlp(0), learning_rate=1.0)).fix
    advised, low, high = (float(number) for number in re.findall(r"[\d.]+(?:e-?\d+)?", fix))
    assert low < advised < high
    assert advised == pytest.approx((low * high) ** 0.5, rel=0.1)


def test_more_planned_updates_make_a_small_rate_enough():
    """No progress is a matter of all planned updates, not of the few that are tried."""
    short, long = replace(cnn(0), learning_rate=2e-5), replace(cnn(0), learning_rate=2e-5, epochs=600)
    assert tried(short).status == "fail"
    assert tried(long).status == "pass"


def test_weights_that_get_no_gradient_are_insufficient():
    setup = mlp(0)
    trial = tried(replace(setup, loss_fn=lambda outputs, targets: outputs * 0))
    assert trial.status == "insufficient"


def test_loss_beyond_all_bounds_is_too_large_and_no_error():
    trial = tried(replace(mlp(0), optimizer="sgd", learning_rate=1e30))
    assert trial.status == "fail"
    assert trial.code == TOO_LARGE
    assert all(abs(loss) < float("inf") for _, loss in trial.curve)
    assert torch.isfinite(torch.tensor(trial.curve)).all()


def test_rare_class_that_weighs_more_is_no_slow_rate():
    # Its plain loss rises while the weighted one, which is trained on, falls.
    found = tried(HEALTHY["declared_imbalance"](3))
    assert found.status == "pass", found.evidence


def two_groups(low: float, kind=torch.optim.AdamW):
    """All layers but the last at a rate of their own."""

    def optimizers(model):
        first, last = list(model.parameters())[:4], list(model.parameters())[4:]
        return [kind(first, lr=low), torch.optim.AdamW(last, lr=5e-3)]

    return replace(mlp(0), build_optimizers=optimizers)


@pytest.mark.parametrize(("low", "kind"), [(1e-7, torch.optim.SGD), (1e-9, torch.optim.AdamW)])
def test_one_of_two_optimizers_that_hardly_moves_its_part_fails_with_it_named(low, kind):
    trial = tried(two_groups(low, kind))
    assert (trial.status, trial.severity) == ("fail", "error"), trial.evidence
    assert "layers.0.weight" in trial.evidence
    assert "far too small" in trial.cause


def test_temperature_at_a_thousandth_of_the_rate_passes_and_a_layer_beside_it_fails():
    trial = tried(FRESH_HEALTHY["slow_temperature"](0))
    assert trial.status == "pass", trial.evidence

    def optimizers(model):
        slow, rest = [model.temperature, *model.layers.layers[2].parameters()], [*model.layers.layers[0].parameters()]
        rest += [*model.layers.layers[4].parameters()]
        return [torch.optim.AdamW([{"params": rest}, {"params": slow, "lr": 5e-9}], lr=5e-3)]

    trial = tried(replace(slow_temperature(0), build_optimizers=optimizers))
    assert trial.status == "fail", trial.evidence
    assert "temperature" in trial.evidence


@pytest.mark.parametrize(("low", "kind"), [(5e-5, torch.optim.AdamW), (1e-2, torch.optim.SGD)])
def test_first_layers_at_a_hundredth_of_the_rate_pass(low, kind):
    trial = tried(two_groups(low, kind))
    assert trial.status == "pass", trial.evidence


class Turned(torch.autograd.Function):
    """Numbers as they are, and gradients with the other sign."""

    @staticmethod
    def forward(ctx, numbers):
        return numbers.view_as(numbers)

    @staticmethod
    def backward(ctx, *grad_outputs):
        return -grad_outputs[0]


UPHILL = {
    "optimizer that maximises": lambda setup: replace(
        setup, build_optimizers=lambda model: [torch.optim.AdamW(model.parameters(), lr=5e-3, maximize=True)]
    ),
    "gradient that is turned": lambda setup: replace(
        setup, learning_rate=0.1, loss_fn=lambda outputs, targets: setup.loss_fn(Turned.apply(outputs), targets)
    ),
    "loss that is negated": lambda setup: replace(
        setup, loss_fn=lambda outputs, targets: -setup.loss_fn(outputs, targets)
    ),
}


@pytest.mark.parametrize("wrong", UPHILL)
def test_loss_that_rises_along_its_gradient_or_falls_without_end_is_no_matter_of_the_rate(wrong):
    trial = tried(UPHILL[wrong](mlp(0)))
    assert trial.status in ("fail", "insufficient")
    assert "declare a rate" not in trial.fix
    assert any(word in trial.cause for word in ("rises", "turned round", "wrong sign"))


@pytest.mark.parametrize("name", TUNED)
def test_rate_far_too_large_for_a_sound_gradient_is_still_told_as_the_rate(name):
    trial = tried(times(name, 100))
    assert (trial.code, trial.fix[:14]) == (TOO_LARGE, "declare a rate")


def rare_words(rate: float) -> Setup:
    """Rows of 60 words out of 6,000, each of which says a little of the label: a batch has few of any row's words.

    Of the rates 0.0003, 0.003, 0.01, 0.03 and 0.1 the second leaves the lowest loss of held-out rows.
    """
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 6000, (1600, 60), generator=generator)
    targets = (torch.randn(6000, generator=generator)[words].mean(dim=1) > 0).float()

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.around = nn.Embedding(6000, 32), nn.Conv1d(32, 32, 3, padding=1)
            self.dropout, self.out = nn.Dropout(0.3), nn.Linear(64, 1)
            nn.init.normal_(self.words.weight, std=0.1)

        def forward(self, words):
            seen = self.words(words).transpose(1, 2)
            around = torch.relu(self.around(self.dropout(seen)))
            return self.out(self.dropout(torch.cat([seen.mean(dim=2), around.mean(dim=2)], dim=1)))

    return Setup(
        network=lambda: ForwardOf("words", Words()), loss_fn=log_loss, seed=0, epochs=4, learning_rate=rate,
        **split(({"words": words}, targets)),
    )  # fmt: skip


def log_loss(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


@pytest.mark.parametrize(("rate", "status"), [(3e-3, "pass"), (3e-4, "fail")])
def test_rate_of_rare_words_is_judged_by_rows_that_share_them(rate, status):
    trial = tried(rare_words(rate))
    assert trial.status == status, trial.evidence
    assert status == "pass" or "too small" in trial.cause
