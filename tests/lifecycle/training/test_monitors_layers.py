"""Monitors of layers, updates and gradients on made-up signals: healthy, and with one thing wrong."""

import json
import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from made_signals import NAMES, shown, signals, with_gradients, with_layers, with_sample

from benchmarks.monitored import monitored
from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.training.monitors.gradients import NotZeroed, StaleGradients
from trainworthy.lifecycle.engine.training.monitors.layers import DeadLayer, NotOptimized, Unchanged
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.resolution import rounds_away
from trainworthy.lifecycle.engine.training.monitors.updates import RoundedAway, UpdateRatio, WeightsShrink
from trainworthy.lifecycle.engine.training.state import TrainState


def unchanged(frozen: tuple[str, ...] = (), coarse: tuple[str, ...] = ()) -> Unchanged:
    return Unchanged(frozen, lambda name, norm, gradient: name in coarse, 400)


UPDATE_RATIO = partial(UpdateRatio, dict.fromkeys(NAMES, 10))
ROUNDED_AWAY = partial(RoundedAway, lambda *_: False)
NOT_ZEROED = partial(NotZeroed, NAMES)
MONITORS = (
    DeadLayer, unchanged, NotOptimized, UPDATE_RATIO, WeightsShrink, ROUNDED_AWAY, StaleGradients, NOT_ZEROED,
)  # fmt: skip


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("kind", MONITORS)
def test_monitor_of_a_healthy_training_finds_nothing(kind):
    assert shown(kind()) == []


@pytest.mark.parametrize("kind", MONITORS)
def test_monitor_restored_half_way_finds_what_the_other_finds(kind):
    whole, first, second = kind(), kind(), kind()
    fault = with_layers(zero_rows=1.0), with_gradients(lambda n, norm: 0.0 if n < 4 else norm)
    shown(whole, 100, fault[1], fault[0])
    shown(first, 100, fault[1], fault[0])
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict() == whole.state_dict()


def test_dead_layer_is_told_at_its_second_sample():
    found = only(shown(DeadLayer(), sampled=with_layers(zero_rows=1.0), onset=50))
    assert (found.step, found.onset, found.severity) == (80, 60, "critical")
    assert "first" in found.where


def test_sparse_layer_of_which_most_features_are_zero_is_healthy():
    assert shown(DeadLayer(), sampled=with_layers(zero_rows=0.97)) == []


def test_parameters_without_gradient_from_the_start_are_told_at_the_second_sample():
    found = only(shown(unchanged(), every=with_gradients(lambda n, norm: None if n < 4 else norm)))
    assert (found.monitor, found.step, found.severity) == ("no_gradient", 20, "critical")
    assert found.where == NAMES[:4]


def test_unused_head_is_a_warning_and_a_declared_one_is_none():
    change = with_gradients(lambda n, norm: None if n >= 4 else norm)
    assert only(shown(unchanged(), every=change)).severity == "warning"
    assert shown(unchanged(frozen=("head.*",)), every=change) == []


def test_expert_that_no_row_chose_is_not_told():
    change = with_gradients(lambda n, norm: None if n >= 4 else norm)
    called = lambda seen: with_sample(layers=seen.layers[:2])(seen)
    assert shown(unchanged(), every=change, sampled=called, onset=50) == []


def test_gradient_of_zero_is_told_and_one_of_all_unless_the_loss_is_zero_too():
    found = only(shown(unchanged(), every=with_gradients(lambda n, norm: 0.0 if n < 4 else norm)))
    assert found.monitor == "zero_gradient"
    lost = with_gradients(lambda n, norm: 0.0)
    assert only(shown(unchanged(), every=lost)).where == NAMES
    # Where it had one before, it may come again: a margin that some batches keep.
    assert only(shown(unchanged(), every=lost, onset=50)).step == 160
    assert shown(unchanged(), every=lambda seen: lost(seen)._replace(loss=0.0)) == []


def test_parameters_that_keep_their_values_are_told_unless_their_gradient_is_rounding_noise():
    still = with_sample(changes=(0.0, 0.0, 3e-3, 2e-3, 2e-3, 1e-3), unchanged=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    found = only(shown(unchanged(), sampled=still))
    assert (found.monitor, found.where) == ("unchanged_layer", NAMES[:2])
    noise = with_gradients(lambda n, norm: 1e-8 if n < 2 else norm)
    assert shown(unchanged(), every=noise, sampled=still) == []


def test_parameters_that_keep_their_values_for_want_of_digits_are_told_as_rounded_away():
    still = with_sample(changes=(0.0, 0.0, 3e-3, 2e-3, 2e-3, 1e-3), unchanged=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    found = only(shown(unchanged(coarse=NAMES[:2]), sampled=still))
    assert (found.monitor, found.where) == ("rounded_updates", NAMES[:2])


STILL = with_sample(changes=(0.0,) * 6, unchanged=(1.0,) * 6)


@pytest.mark.parametrize(
    ("rate", "onset", "severities"),
    [(1e-9, 200, []), (0.0, 200, ["critical"]), (5e-4, 200, ["critical"]), (1e-9, 0, ["critical"])],
    ids=["at the end of a schedule", "at a rate of zero", "at a usual rate", "that was as low throughout"],
)
def test_weights_that_a_rate_too_small_to_see_leaves_are_told_unless_the_schedule_came_down_to_it(
    rate, onset, severities
):
    lowered = lambda seen: seen._replace(learning_rate=rate)
    found = shown(unchanged(), every=lowered, sampled=STILL, onset=onset)
    assert [one.severity for one in found] == severities


def test_gradient_that_becomes_next_to_nothing_at_a_rate_that_stays_is_told():
    def vanished(seen):
        return with_gradients(lambda n, norm: 1e-8 * norm)(seen)._replace(learning_rate=1e-3)

    assert only(shown(unchanged(), every=vanished, sampled=STILL, onset=200)).severity == "critical"


def test_schedule_that_leaves_most_of_the_training_nothing_is_a_warning_that_names_it():
    decays = lambda step, steps: 5e-3 * 0.98**step
    seen = monitored(replace(mlp(0), schedule=decays, epochs=20).subject())
    found = [alarm for alarm in seen.alarms if alarm.monitor == "unchanged_layer"]
    assert [alarm.severity for alarm in found] == ["warning"]
    assert "the schedule has brought the rate from 0.005" in found[0].evidence
    assert found[0].rule == "schedule_at_zero", found[0]


def test_coarse_weights_that_keep_their_values_at_a_tenth_of_the_rate_are_rounded_away():
    lowered = lambda seen: seen._replace(learning_rate=5e-5)
    assert only(shown(unchanged(coarse=NAMES), every=lowered, sampled=STILL, onset=200)).monitor == "rounded_updates"


def test_schedule_that_ends_at_almost_nothing_is_no_alarm():
    falls = lambda step, steps: 5e-3 * (0.5 * (1 + math.cos(math.pi * step / steps))) ** 3
    seen = monitored(replace(mlp(0), schedule=falls, epochs=20).subject())
    assert (seen.signals[-10].learning_rate < 1e-12, seen.alarms) == (True, [])


@pytest.mark.parametrize(
    ("kind", "optimizer", "rate", "lost"),
    [
        (torch.bfloat16, torch.optim.AdamW, 1e-4, True),
        (torch.bfloat16, torch.optim.AdamW, 1e-1, False),
        (torch.bfloat16, torch.optim.AdamW, 0.0, False),
        (torch.bfloat16, torch.optim.SGD, 1e-1, True),
        (torch.float32, torch.optim.AdamW, 1e-12, False),
    ],
)
def test_updates_are_rounded_away_by_type_and_rate(kind, optimizer, rate, lost):
    model = torch.nn.Linear(100, 1, bias=False, dtype=kind)
    state = TrainState(model, (optimizer(model.parameters(), lr=rate),))
    # Typical weights of 1 and, for plain SGD, gradients of 0.01.
    assert rounds_away(state, "weight", 10.0, 0.1) is lost


def test_parameter_in_no_optimizer_is_told_at_once():
    found = only(shown(NotOptimized(), sampled=with_sample(left_out=("head.weight",)), onset=50))
    assert (found.step, found.severity, found.where) == (60, "critical", ("head.weight",))
    assert only(shown(NotOptimized(), sampled=with_sample(left_out=("head.weight",)))).severity == "warning"


def test_first_update_of_weights_that_start_small_may_be_as_large_as_they_are():
    first = with_sample(changes=(2.0,) * 6)
    assert shown(UPDATE_RATIO(), sampled=lambda seen: seen if seen.step else first(seen)) == []


def test_small_start_that_grows_to_the_others_size_is_healthy():
    grown = with_sample(norms=(30.0, 0.5, 30.0, 0.5, 2.0, 0.1), changes=(3e-3, 2e-3, 3e-3, 2e-3, 0.2, 1e-3))
    small = with_sample(norms=(30.0, 0.5, 30.0, 0.5, 0.01, 0.1))
    assert shown(UPDATE_RATIO(), sampled=lambda seen: grown(seen) if seen.step else small(seen)) == []


def test_updates_as_large_as_the_weights_are_told():
    found = only(shown(UPDATE_RATIO(), sampled=with_sample(changes=(0.4,) * 6)))
    assert (found.monitor, found.step) == ("update_ratio", 20)


def test_update_that_replaces_the_weights_is_told_at_once():
    found = only(shown(UPDATE_RATIO(), sampled=with_sample(changes=(2.0,) * 6), onset=50))
    assert (found.monitor, found.step) == ("update_ratio", 60)


def test_bias_that_starts_at_zero_may_move_by_its_size():
    changes = (3e-3, 2e-3, 3e-3, 2e-3, 2e-3, 0.2)
    assert shown(UPDATE_RATIO(), sampled=with_sample(norms=(3.0, 0.5, 3.0, 0.5, 1.0, 0.2), changes=changes)) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ((3e-3, 2e-3, 3e-3, 2e-3, 0.7, 1e-3), "layer_updates_too_large"),
        ((3e-8, 2e-3, 3e-3, 2e-3, 2e-3, 1e-3), "layer_left_behind"),
    ],
)
def test_one_parameter_that_stands_out_is_told(changes, told):
    # Beside a layer large enough that the whole network is not the matter.
    change = with_sample(norms=(30.0, 0.5, 30.0, 0.5, 1.0, 0.1), changes=changes)
    assert [found.monitor for found in shown(UPDATE_RATIO(), sampled=change)] == [told]


def test_parameter_that_grows_with_its_own_updates_is_told_beside_those_of_another_order():
    start = (30.0, 0.5, 30.0, 0.5, 1.0, 0.1)
    grown = with_sample(norms=(30.0, 0.5, 30.0, 0.5, 9.0, 0.1), changes=(3e-3, 2e-3, 3e-3, 2e-3, 0.9, 1e-3))

    def change(seen):
        return grown(seen) if seen.step else with_sample(norms=start)(seen)

    found = only(shown(UPDATE_RATIO(), sampled=change))
    assert (found.monitor, found.step, found.where) == ("layer_updates_too_large", 60, ("head.weight",))


def test_small_parameter_that_grows_at_the_rate_of_all_is_healthy():
    grown = with_sample(norms=(3.0, 0.5, 3.0, 0.5, 1.0, 0.1), changes=(3e-3, 2e-3, 3e-3, 2e-3, 2e-3, 3e-3))

    def change(seen):
        return grown(seen) if seen.step else with_sample(norms=(3.0, 0.5, 3.0, 0.5, 1.0, 4e-3))(seen)

    assert shown(UPDATE_RATIO(), sampled=change) == []


def shrinking(left: float):
    def change(seen):
        return with_sample(norms=tuple(left ** (seen.step / 20) * norm for norm in seen.norms))(seen)

    return change


def with_losses(level):
    return lambda seen: seen._replace(loss=level(seen.step))


def test_weights_that_lose_most_of_themselves_while_the_loss_stays_are_told():
    found = only(shown(WeightsShrink(), 80, with_losses(lambda step: 0.69), shrinking(0.4)))
    assert (found.step, found.onset, found.severity) == (20, 0, "warning")
    assert shown(WeightsShrink(), 80, with_losses(lambda step: 0.69), shrinking(0.8)) == []


def test_large_start_that_is_learned_down_does_not_shrink():
    assert shown(WeightsShrink(), 80, with_losses(lambda step: 9 * 0.95**step), shrinking(0.4)) == []


def test_parts_that_are_frozen_do_not_shrink_what_is_trained():
    frozen = with_sample(trainable=(False,) * 4 + (True,) * 2)
    apart = lambda seen: frozen(seen) if seen.step >= 40 else seen
    assert shown(WeightsShrink(), 120, with_losses(lambda step: 0.69), apart) == []


def test_updates_that_are_rounded_away_are_told_and_at_a_schedules_end_are_not():
    lost = with_sample(unchanged=(0.95,) * 6)
    assert only(shown(ROUNDED_AWAY(), sampled=lost)).step == 20
    assert shown(ROUNDED_AWAY(), sampled=lost, onset=300) == []


def test_gradients_of_earlier_updates_are_told_after_three():
    kept = with_gradients(lambda n, norm: 0.2)
    found = only(shown(StaleGradients(), every=kept, onset=50))
    assert (found.step, found.severity) == (53, "critical")


def test_equal_gradients_of_equal_batches_are_not_stale():
    at_rest = lambda seen: with_gradients(lambda n, norm: 0.2)(seen)._replace(loss=0.5, squared=0.3)
    assert shown(StaleGradients(), every=at_rest, sampled=with_sample(changes=(0.0,) * 6)) == []


def test_gradients_of_some_parameters_that_stay_are_told_and_one_bias_is_not():
    some = with_gradients(lambda n, norm: 0.2 if n < 2 else norm)
    assert only(shown(StaleGradients(), every=some)).where == NAMES[:2]
    assert shown(StaleGradients(), every=with_gradients(lambda n, norm: 1.0 if n == 5 else norm)) == []


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_gradients_that_add_up_are_told_by_their_growth(power):
    def added(seen):
        return with_gradients(lambda n, norm: norm * (seen.step + 1) ** power)(seen)

    assert only(shown(NOT_ZEROED(), every=added)).step == 19


@pytest.mark.parametrize(
    "growth",
    [lambda step: math.exp(0.1 * step), lambda step: math.exp(0.15 * step) - 0.5,
     lambda step: 1.0 if step < 10 else 5.0,
     lambda step: random.Random(step).lognormvariate(0, 1)],
    ids=["out of a saddle", "out of a small start", "a jump", "noise"],
)  # fmt: skip
def test_gradients_that_grow_otherwise_are_not_added(growth):
    grown = lambda seen: with_gradients(lambda n, norm: norm * growth(seen.step))(seen)
    assert shown(NOT_ZEROED(), every=grown) == []


def swinging(seen, n: int) -> float:
    return random.Random(f"{seen.step} {n}").lognormvariate(0, 0.3)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_gradients_of_some_parameters_that_add_up_are_told_and_named(power):
    def added(seen):
        return with_gradients(
            lambda n, norm: 1e-4 * (seen.step + 1) ** power * swinging(seen, n) ** 0.05 if n < 2 else swinging(seen, n)
        )(seen)

    found = only(shown(NOT_ZEROED(), every=added))
    assert (found.step, found.severity, found.where) == (19, "warning", NAMES[:2])


def test_gradients_behind_a_head_that_grows_from_near_zero_are_not_added():
    def grown(seen):
        return with_gradients(lambda n, norm: swinging(seen, n) * ((seen.step + 1) * 1e-4 if n < 2 else 1.0))(seen)

    assert shown(NOT_ZEROED(), every=grown) == []


def test_gradients_that_are_stale_across_an_interruption_are_told_at_the_same_update():
    at, found = 100, {}
    for interrupted in (False, True):
        monitor = StaleGradients()
        for step in range(at + 10):
            if interrupted and step == at + 2:
                held = json.loads(json.dumps(monitor.state_dict()))
                monitor = StaleGradients()
                monitor.load_state_dict(held)
            first, seen = signals(at), signals(step)
            if step >= at:
                seen = seen._replace(grad_norm=first.grad_norm, grad_norms=first.grad_norms)
            if (told := monitor.after_backward(seen)) is not None:
                found[interrupted] = told
    assert found[True] == found[False]
    assert found[True].step == at + 3
