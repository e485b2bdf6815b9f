"""Monitors of the loss, of the outputs, of rows and of the machine on made-up signals."""

import copy
import math
import random
import statistics
from dataclasses import replace

import pytest
import torch
from made_signals import sample, shown, signals, told, with_sample
from torch import nn

from benchmarks.monitored import monitored
from benchmarks.networks import mlp, split
from benchmarks.setup import ForwardOf
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.monitors.curve import (
    ConstantPredictions,
    Level,
    Overfitting,
    Plateau,
    RiseAboveBest,
)
from trainworthy.lifecycle.engine.training.monitors.feeding import RepeatedBatches, ThroughputDrop, WaitsForRows
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.resources import GpuIdle, MemoryGrowth, ReplicasApart
from trainworthy.lifecycle.engine.training.monitors.without_dropout import WithoutDropout
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.training_figures import CurvePoint

MADE = {
    "plateau": lambda: Plateau(400, prior_loss=0.69), "rise": RiseAboveBest, "constant": ConstantPredictions,
    "repeated": lambda: RepeatedBatches(100), "waits": WaitsForRows, "throughput": ThroughputDrop,
    "memory": lambda: MemoryGrowth(400, 8e8), "gpu": GpuIdle, "replicas": ReplicasApart,
}  # fmt: skip


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def with_loss(loss):
    """The loss by the step, with noise between rows of 0.14."""
    return lambda seen: seen._replace(loss=loss(seen.step), squared=loss(seen.step) ** 2 + 0.02)


def noisy(level):
    return with_loss(lambda step: level(step) + random.Random(step).gauss(0, 0.02))


@pytest.mark.parametrize("name", MADE)
def test_monitor_of_a_healthy_training_finds_nothing(name):
    assert shown(MADE[name]()) == []


@pytest.mark.parametrize("name", MADE)
def test_monitor_restored_goes_on_where_it_was(name):
    first, second = MADE[name](), MADE[name]()
    shown(first, 100, every=with_loss(lambda step: 0.7))
    second.load_state_dict(first.state_dict())
    rest, samples = [signals(step) for step in range(100, 400)], {step: sample(step) for step in range(100, 400, 20)}
    assert told(second, rest, samples) == told(first, rest, samples)


def test_loss_that_does_not_fall_is_a_warning_after_a_quarter():
    found = only(shown(Plateau(400), every=noisy(lambda step: 0.69)))
    assert (found.severity, found.step) == ("warning", 119)


def test_loss_that_falls_to_that_of_a_constant_answer_is_told_where_that_is_known():
    to_prior = noisy(lambda step: 0.69 + 0.5 * math.exp(-step / 5))
    assert only(shown(Plateau(400, prior_loss=0.69), every=to_prior)).symptom == symptom_of("plateau", "prior")
    assert shown(Plateau(400), every=to_prior) == []


def test_loss_whose_noise_could_hide_progress_is_not_told():
    assert shown(Plateau(400), every=with_loss(lambda step: random.Random(step).gauss(1.0, 0.8))) == []


@pytest.mark.parametrize(
    ("now", "told"),
    [(Level(0.66, 0.003), False), (Level(0.69, 0.003), True), (Level(0.66, 0.1), False), (None, True)],
    ids=["has fallen", "has not fallen", "may have fallen", "is not known"],
)
def test_loss_under_dropout_stands_still_only_if_the_one_without_does(now, told):
    asked = []

    def without_dropout() -> Level | None:
        asked.append(now if asked else now and Level(0.69, 0.003))
        return asked[-1]

    found = shown(Plateau(400, without_dropout=without_dropout), every=noisy(lambda step: 0.73))
    assert [one.monitor for one in found] == ["plateau"] * told
    assert not told or ("; without dropout 0.69 " in found[0].evidence) == (now is not None)
    assert len(asked) <= 3, "at the start, after a quarter of the run, and once half of it is over"


def dropped(share: float, **changes) -> Subject:
    """The table's MLP, wider, that share of its units left out before each layer."""
    network = lambda: ForwardOf(
        "numbers",
        nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Dropout(share), nn.Linear(128, 128), nn.ReLU(),
                      nn.Dropout(share), nn.Linear(128, 1)),
    )  # fmt: skip
    subject = replace(mlp(0), network=network, learning_rate=1e-3, epochs=20).subject()
    return replace(subject, plan=subject.plan.model_copy(update={"last_step": 80}), **changes)


def test_strong_dropout_under_which_the_network_learns_is_no_plateau_and_labels_of_other_rows_are():
    found = monitored(dropped(0.9))
    assert statistics.fmean(seen.loss for seen in found.signals[-40:]) > 0.7, "the loss under dropout is a constant's"
    assert [one.monitor for one in found.alarms] == []
    rows = mlp(0).training
    order = torch.randperm(len(rows.targets), generator=torch.Generator().manual_seed(3))
    shuffled = monitored(dropped(0.9, training=replace(rows, targets=rows.targets[order])))
    assert "plateau" in {one.monitor for one in shuffled.alarms}


@pytest.mark.parametrize(
    ("layer", "noisy"), [(nn.Dropout(0.5), True), (nn.BatchNorm1d(12), False)], ids=["dropout", "batch norm"]
)
def test_loss_without_dropout_is_that_of_evaluation_and_leaves_the_model_as_it_was(layer, noisy):
    setup = mlp(0)
    model = ForwardOf("numbers", nn.Sequential(layer, nn.Linear(12, 1)))
    few, recipe = setup.training.take(torch.arange(0, 200)), setup.subject().recipe
    before, drawn = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    level = WithoutDropout(model, few, recipe, 32)()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), drawn)
    with torch.no_grad():
        losses = recipe.loss_fn(model.eval()(few.inputs), few.targets).double()
    expected = Level(float(losses.mean()), float(losses.std()) / math.sqrt(200))
    assert level == (pytest.approx(expected) if noisy else None)


class Counted(nn.Module):
    """Dropout that counts its passes in training mode, as a network does that goes on by them."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        return torch.nn.functional.dropout(values, 0.5, self.training)


def test_loss_without_dropout_counts_no_pass_of_the_training():
    setup, counted = mlp(0), Counted()
    model = ForwardOf("numbers", nn.Sequential(counted, nn.Linear(12, 1)))
    few = setup.training.take(torch.arange(0, 200))
    without = WithoutDropout(model, few, setup.subject().recipe, 32)
    assert without() is not None
    assert without() is not None
    assert counted.passes == 0


def test_loss_that_rises_above_its_best_and_stays_is_a_warning():
    found = only(shown(RiseAboveBest(), every=noisy(lambda step: 0.9), onset=200))
    assert found.severity == "warning"
    assert 200 <= found.onset <= 220
    assert found.step <= 259


def test_losses_that_swing_wildly_above_what_was_there_are_a_rise():
    wild = with_loss(lambda step: 2.0 + 40.0 * (step % 10 == 0))
    assert only(shown(RiseAboveBest(), every=wild, onset=200)).monitor == "rise_above_best"


@pytest.mark.parametrize(("rows", "told"), [(320, []), (36, ["rise_above_best"]), (32, ["rise_above_best"])])
def test_losses_of_updates_of_another_size_are_not_held_against_the_best(rows, told):
    """The sum over an episode grows with its length, which is what a policy is to learn."""
    some = lambda seen: seen._replace(rows=28 + seen.step % 9)
    longer = lambda seen: noisy(lambda step: 0.9)(seen)._replace(rows=rows) if seen.step >= 200 else some(seen)
    assert [found.monitor for found in shown(RiseAboveBest(), every=longer)] == told


@pytest.mark.parametrize(("rows", "told"), [(320, []), (32, ["plateau"])])
def test_losses_of_updates_of_another_size_are_no_plateau(rows, told):
    still = noisy(lambda step: 0.69)
    longer = lambda seen: still(seen)._replace(rows=rows) if seen.step >= 60 else still(seen)
    assert [found.monitor for found in shown(Plateau(400), every=longer)] == told


def test_rise_with_the_learning_rate_is_healthy():
    cycle = lambda seen: noisy(lambda step: 0.55)(seen)._replace(learning_rate=5e-3)
    assert shown(RiseAboveBest(), every=cycle, onset=200) == []


def test_rise_goes_on_from_a_checkpoint_of_before():
    monitor = RiseAboveBest()
    old = {"_told": [], "_start": 0.7, "_best": [0.3, 0.01, 1e-3, 79], "_risen": 0, "_onset": 0, "_borne": 1e-3}
    monitor.load_state_dict(old)
    assert only(shown(monitor, every=noisy(lambda step: 0.9), onset=200)).monitor == "rise_above_best"


def test_one_bad_window_is_no_rise():
    assert shown(RiseAboveBest(), every=noisy(lambda step: 0.9 if 200 <= step < 220 else 0.35)) == []


def points(step: int, training: float, reserve: float) -> tuple[CurvePoint, ...]:
    of = {"rows": 200, "standard_error": 0.01, "learning_rate": 1e-3}
    return (
        CurvePoint(step=step, loss=training, **of),
        CurvePoint(step=step, loss=reserve, mode="evaluation", scored="reserve", **of),
    )


@pytest.mark.parametrize(
    ("training", "told"), [(lambda n: 0.5 - 0.02 * n, True), (lambda n: 0.5 + 0.02 * n, False)], ids=["falls", "rises"]
)
def test_reserve_that_rises_is_overfitting_only_while_training_falls(training, told):
    monitor = Overfitting()
    found = [monitor.after_points(points(10 * n, training(n), 0.5 + 0.015 * n)) for n in range(12)]
    assert any(found) == told


def test_reserve_that_wavers_within_its_error_is_healthy():
    monitor = Overfitting()
    drawn = random.Random(0)
    assert not any(monitor.after_points(points(10 * n, 0.5 - 0.02 * n, drawn.gauss(0.5, 0.005))) for n in range(60))


@pytest.mark.parametrize(
    ("left", "prior_loss", "severity"),
    [(1e-3, None, "critical"), (5e-3, None, "warning"), (1e-3, 0.5, "critical")],
    ids=["nothing left", "little left", "nothing left and nothing learned"],
)
def test_answers_that_become_the_same_are_told_at_the_second_sample(left, prior_loss, severity):
    same = with_sample(spread=left, deviation=left)
    found = only(shown(ConstantPredictions(prior_loss), sampled=same, every=noisy(lambda step: 0.5), onset=50))
    assert (found.step, found.severity) == (80, severity)


def test_answers_that_go_on_to_become_the_same_are_told_once_more():
    collapses = lambda seen: replace(seen, spread=(left := 1 / (1 + seen.step**2 / 50)), deviation=left)
    assert [one.severity for one in shown(ConstantPredictions(), sampled=collapses)] == ["warning", "critical"]


def test_answers_to_targets_that_hardly_vary_are_none_where_the_loss_shows_that_they_are_learned():
    same = with_sample(spread=0.001, deviation=0.001)
    assert shown(ConstantPredictions(1.0), sampled=same, every=noisy(lambda step: 0.2), onset=50) == []


def test_regression_about_a_large_mean_has_no_alarm():
    """Answers begin too large for targets of 1 ± 0.02, and end where these are."""
    x = torch.randn(2000, 12, generator=torch.Generator().manual_seed(0))
    targets = 1 + 0.02 * (x[:, 0] + 0.3 * torch.randn(2000, generator=torch.Generator().manual_seed(1)))
    network = lambda: nn.Sequential(nn.Linear(12, 1), nn.Flatten(0))
    setup = replace(
        mlp(0), network=lambda: ForwardOf("numbers", network(), squeeze=False), loss_fn=lambda o, t: (o - t).square(),
        predict=None, learning_rate=3e-3, epochs=40, **split(({"numbers": x}, targets)),
    )  # fmt: skip
    found = monitored(setup.subject()).alarms
    assert [one for one in found if one.monitor == "constant_predictions"] == []


def test_answers_that_were_never_apart_are_told_where_the_targets_are():
    nothing = with_sample(spread=0.0)
    assert only(shown(ConstantPredictions(), sampled=nothing)).step == 40
    one_loss = lambda seen: seen._replace(squared=seen.loss**2)
    assert shown(ConstantPredictions(), every=one_loss, sampled=nothing) == []


@pytest.mark.parametrize(
    ("spread", "deviation"),
    [(0.001, 0.5), (0.5, 0.001), (0.05, 0.05), (math.nan, math.nan)],
    ids=["far from zero", "began too large", "some spread left", "a batch of one row"],
)
def test_small_or_unknown_spread_is_healthy(spread, deviation):
    changed = with_sample(spread=spread, deviation=deviation)
    assert shown(ConstantPredictions(), sampled=changed, onset=50) == []


@pytest.mark.parametrize("circle", [1, 3, 20])
def test_batches_in_circles_are_told_at_the_second_that_comes_again(circle):
    again = lambda seen: seen._replace(batch=seen.step % circle)
    assert only(shown(RepeatedBatches(100), every=again)).step == circle + 1


def test_batches_that_come_again_in_the_next_pass_are_healthy():
    assert shown(RepeatedBatches(7), every=lambda seen: seen._replace(batch=seen.step % 7)) == []
    assert shown(RepeatedBatches(1), every=lambda seen: seen._replace(batch=5), sampled=with_sample(content=5)) == []


def test_same_contents_under_other_numbers_are_told_by_samples():
    assert only(shown(RepeatedBatches(400), sampled=with_sample(content=5))).step == 40


def test_waiting_for_rows_is_told_once_it_costs_something():
    waits = lambda seconds: lambda seen: seen._replace(seconds=1.5 * seconds, wait_seconds=seconds)
    assert only(shown(WaitsForRows(), every=waits(0.1), onset=50)).severity == "warning"
    assert shown(WaitsForRows(), every=waits(0.001)) == []


@pytest.mark.parametrize(("rows", "count"), [(32 * 50, 0), (32, 1), (16, 1)])
def test_updates_that_take_longer_for_more_rows_are_not_told(rows, count):
    longer = lambda seen: seen._replace(seconds=0.5, rows=rows)
    assert len(shown(ThroughputDrop(), every=longer, onset=100)) == count


def test_slower_updates_are_told_if_they_stay_so():
    slow = lambda seen: seen._replace(seconds=0.5)
    found = only(shown(ThroughputDrop(), every=slow, onset=100))
    assert found.step <= 219
    one_checkpoint = lambda seen: seen._replace(seconds=60.0 if seen.step % 50 == 0 else seen.seconds)
    assert shown(ThroughputDrop(), every=one_checkpoint) == []


def test_memory_that_would_not_last_is_critical_and_one_that_levels_off_is_not():
    grown = lambda by: lambda seen: replace(seen, memory_bytes=5e8 + by(seen.step))
    found = only(shown(MemoryGrowth(400, 8e8), sampled=grown(lambda step: 2e6 * step)))
    assert found.severity == "critical"
    # What fills up in a first pass is far from the limit as well.
    far = shown(MemoryGrowth(20_000, 16e9), 180 + 20, sampled=grown(lambda step: 2e6 * step))
    assert only(far).severity == "warning"
    worse = shown(MemoryGrowth(4000, 4e9), 400, sampled=grown(lambda step: 5e6 * step))
    assert [found.severity for found in worse] == ["warning", "critical"]
    assert shown(MemoryGrowth(400, 8e8), sampled=grown(lambda step: 2.5e8 * (1 - math.exp(-step / 60)))) == []
    assert shown(MemoryGrowth(400, 8e9), sampled=grown(lambda step: 2e4 * step)) == []


def test_gpu_that_waits_is_told_and_one_that_is_not_there_is_not():
    assert only(shown(GpuIdle(), sampled=with_sample(gpu_busy=0.1))).step == 80
    assert shown(GpuIdle(), sampled=with_sample(gpu_busy=0.9)) == []


def test_processes_with_other_weights_are_told_at_once():
    alike = with_sample(replicas=((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)))
    apart = with_sample(replicas=((1, 2, 3, 4, 5, 6), (1, 2, 3, 9, 5, 6)))
    assert shown(ReplicasApart(), sampled=alike) == []
    found = only(shown(ReplicasApart(), sampled=apart, onset=50))
    assert (found.step, found.where) == (60, ("middle.bias",))
