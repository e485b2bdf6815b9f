"""Monitors of layers, updates and gradients on made-up signals: healthy, and with one thing wrong."""

import json
import math
import random

import pytest
from made_signals import NAMES, shown, signals, with_gradients, with_layers, with_sample

from lifecycle.training.monitors.gradients import NotZeroed, StaleGradients
from lifecycle.training.monitors.layers import DeadLayer, NotOptimized, Unchanged
from lifecycle.training.monitors.monitor import Finding
from lifecycle.training.monitors.updates import RoundedAway, UpdateRatio

MONITORS = (DeadLayer, Unchanged, NotOptimized, UpdateRatio, RoundedAway, StaleGradients, NotZeroed)


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
    found = only(shown(Unchanged(), every=with_gradients(lambda n, norm: None if n < 4 else norm)))
    assert (found.monitor, found.step, found.severity) == ("no_gradient", 20, "critical")
    assert found.where == NAMES[:4]


def test_unused_head_is_a_warning_and_a_declared_one_is_none():
    change = with_gradients(lambda n, norm: None if n >= 4 else norm)
    assert only(shown(Unchanged(), every=change)).severity == "warning"
    assert shown(Unchanged(frozen=("head.*",)), every=change) == []


def test_expert_that_no_row_chose_is_not_told():
    change = with_gradients(lambda n, norm: None if n >= 4 else norm)
    called = lambda seen: with_sample(layers=seen.layers[:2])(seen)
    assert shown(Unchanged(), every=change, sampled=called, onset=50) == []


def test_gradient_of_zero_is_told_and_one_of_all_is_not():
    found = only(shown(Unchanged(), every=with_gradients(lambda n, norm: 0.0 if n < 4 else norm)))
    assert found.monitor == "zero_gradient"
    assert shown(Unchanged(), every=with_gradients(lambda n, norm: 0.0)) == []


def test_parameters_that_keep_their_values_are_told_unless_their_gradient_is_rounding_noise():
    still = with_sample(changes=(0.0, 0.0, 3e-3, 2e-3, 2e-3, 1e-3), unchanged=(1.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    found = only(shown(Unchanged(), sampled=still))
    assert (found.monitor, found.where) == ("unchanged_layer", NAMES[:2])
    noise = with_gradients(lambda n, norm: 1e-8 if n < 2 else norm)
    assert shown(Unchanged(), every=noise, sampled=still) == []


def test_parameter_in_no_optimizer_is_told_at_once():
    found = only(shown(NotOptimized(), sampled=with_sample(left_out=("head.weight",)), onset=50))
    assert (found.step, found.severity, found.where) == (60, "critical", ("head.weight",))
    assert only(shown(NotOptimized(), sampled=with_sample(left_out=("head.weight",)))).severity == "warning"


def test_updates_as_large_as_the_weights_are_told():
    found = only(shown(UpdateRatio(), sampled=with_sample(changes=(0.4,) * 6)))
    assert (found.monitor, found.step) == ("update_ratio", 20)


def test_update_that_replaces_the_weights_is_told_at_once():
    found = only(shown(UpdateRatio(), sampled=with_sample(changes=(2.0,) * 6), onset=50))
    assert (found.monitor, found.step) == ("update_ratio", 60)


def test_bias_that_starts_at_zero_may_move_by_its_size():
    changes = (3e-3, 2e-3, 3e-3, 2e-3, 2e-3, 0.2)
    assert shown(UpdateRatio(), sampled=with_sample(norms=(3.0, 0.5, 3.0, 0.5, 1.0, 0.2), changes=changes)) == []


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
    assert [found.monitor for found in shown(UpdateRatio(), sampled=change)] == [told]


def test_updates_that_are_rounded_away_are_told_and_at_a_schedules_end_are_not():
    lost = with_sample(unchanged=(0.95,) * 6)
    assert only(shown(RoundedAway(), sampled=lost)).step == 20
    assert shown(RoundedAway(), sampled=lost, onset=300) == []


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

    assert only(shown(NotZeroed(), every=added)).step == 19


@pytest.mark.parametrize(
    "growth",
    [lambda step: math.exp(0.1 * step), lambda step: 1.0 if step < 10 else 5.0,
     lambda step: random.Random(step).lognormvariate(0, 1)],
    ids=["out of a saddle", "a jump", "noise"],
)  # fmt: skip
def test_gradients_that_grow_otherwise_are_not_added(growth):
    grown = lambda seen: with_gradients(lambda n, norm: norm * growth(seen.step))(seen)
    assert shown(NotZeroed(), every=grown) == []


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
