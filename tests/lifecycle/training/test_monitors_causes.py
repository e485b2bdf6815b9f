"""From findings to causes: the field's debugging table, line by line, and what follows from what."""

from dataclasses import replace

import pytest
import torch

from benchmarks.networks import HOSTS
from benchmarks.planted_dynamics import FAULTS
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.causes import (
    Context,
    context_of,
    diagnose,
    diagnosed,
    likely,
    of_alarms,
)
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.non_finite import not_finite_alarm
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.monitors.row_keys import NamedRows
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.gates.monitor_words import cause_of
from trainworthy.lifecycle.spec.training import MonitorsSpec

USUAL = Context(learning_rate=1e-3, largest_rate=1e-3, update_ratio=3e-3)


def found(monitor: str, step: int = 100, onset: int | None = None) -> Finding:
    return Finding(monitor, "critical", step, step if onset is None else onset, "symptom", "evidence")


def words(name: str, case: str) -> tuple[str, str]:
    """A rule's name and the catalogue's words for that case of it."""
    return name, cause_of(name, case).cause


def names(*findings: Finding, context: Context = USUAL) -> list[str]:
    return [cause.name for cause in diagnose(findings, context)]


TABLE = {
    "NaN loss, rows that hold NaN": (
        [found("non_finite_loss")], Context(1e-3, 1e-3, bad_inputs=True), "rows_not_finite",
    ),
    "NaN loss after a spike at this batch": (
        [found("outlier_batch", 100), found("non_finite_loss", 100)], USUAL, "these_rows",
    ),
    "NaN loss after gradients that grew": (
        [found("exploding_gradients", 90), found("gradient_spike", 95), found("non_finite_loss")], USUAL,
        "learning_rate_too_high",
    ),
    "NaN gradient of a finite loss": ([found("non_finite_gradient")], USUAL, "derivative_not_defined"),
    "NaN of half precision": (
        [found("non_finite_gradient")], Context(1e-3, 1e-3, precision="fp16"), "overflow_of_half_precision",
    ),
    "NaN loss and nothing before": ([found("non_finite_loss")], USUAL, "value_not_defined"),
    "NaN weights of finite gradients": ([found("non_finite_parameter")], USUAL, "optimizer_makes_it"),
    "plateau and a detached layer": ([found("plateau"), found("no_gradient", 20, 0)], USUAL, "detached_layer"),
    "plateau and parameters that do not change": (
        [found("plateau"), found("unchanged_layer", 20, 0)], USUAL, "frozen_layer",
    ),
    "plateau at a rate of zero": (
        [found("plateau"), found("unchanged_layer", 20, 0)], Context(0.0, 1e-3), "schedule_at_zero",
    ),
    "loss that rises and weights that shrink": (
        [found("rise_above_best"), found("weights_shrink", 20, 0)], USUAL, "weights_decay_away",
    ),
    "plateau and tiny updates": ([found("plateau")], Context(1e-7, 1e-7, update_ratio=1e-6), "learning_rate_too_low"),
    "plateau and a dead layer": (
        [found("plateau"), found("dead_layer", 20, 0), found("zero_gradient", 20, 0)], USUAL, "dead_units",
    ),
    "plateau and nothing else": ([found("plateau")], USUAL, "labels_without_signal"),
    "constant answers": ([found("plateau"), found("constant_predictions", 40)], USUAL, "collapsed_answers"),
    "constant answers after updates that were too large": (
        [found("update_ratio", 20, 0), found("dead_layer", 60, 40), found("constant_predictions", 60, 40)], USUAL,
        "learning_rate_too_high",
    ),
    "out of memory": ([found("throughput_drop"), found("memory_growth")], USUAL, "memory_leak"),
    "hang": ([found("hang")], USUAL, "hang"),
    "slow, waiting for rows": ([found("gpu_idle"), found("data_wait")], USUAL, "loaders_too_slow"),
    "slow, and no waiting": ([found("throughput_drop")], USUAL, "slower"),
    "validation loss rises, training's falls": ([found("overfitting")], USUAL, "overfitting"),
    "validation loss rises on batches that repeat": (
        [found("overfitting"), found("repeated_batches")], USUAL, "batch_repeats",
    ),
    "loss rises, gradients do not": ([found("rise_above_best")], USUAL, "rows_of_another_kind"),
    "loss and gradient rise": (
        [found("gradient_spike", 90), found("rise_above_best")], USUAL, "learning_rate_too_high",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", TABLE)
def test_line_of_the_debugging_table_names_the_cause_first(line):
    findings, context, cause = TABLE[line]
    assert names(*findings, context=context)[0] == cause
    assert names(*reversed(findings), context=context)[0] == cause


def test_what_an_earlier_cause_explains_is_no_cause_of_its_own():
    assert names(found("not_in_optimizer"), found("unchanged_layer"), found("plateau")) == ["not_in_optimizer"]


def test_what_nothing_explains_is_a_cause_of_its_own():
    assert names(found("dead_layer"), found("data_wait")) == ["dead_units", "loaders_too_slow"]


def test_spike_long_before_is_not_what_ends_it():
    assert names(found("loss_spike", 100), found("non_finite_loss", 5000))[0] == "value_not_defined"


MONITORS = (
    "non_finite_loss", "non_finite_gradient", "non_finite_activation", "non_finite_parameter", "outlier_batch",
    "loss_spike", "gradient_spike", "exploding_gradients", "vanishing_gradients", "dead_layer", "no_gradient",
    "zero_gradient", "unchanged_layer", "not_in_optimizer", "update_ratio", "layer_left_behind",
    "layer_updates_too_large", "weights_shrink", "rounded_updates", "plateau",
    "rise_above_best", "overfitting", "constant_predictions",
    "repeated_batches", "stale_gradients", "gradients_not_zeroed", "replicas_apart", "memory_growth", "data_wait",
    "throughput_drop", "hang", "gpu_idle",
)  # fmt: skip


@pytest.mark.parametrize("monitor", MONITORS)
def test_finding_of_each_monitor_alone_has_a_cause_and_a_fix(monitor):
    why = diagnosed(found(monitor))
    assert why.rule
    assert why.cause
    assert why.fix
    assert why.also_explains == ""


def test_nothing_found_has_no_cause():
    assert diagnose([], USUAL) == ()


def test_every_cause_has_words_and_a_fix():
    for findings, context, _ in TABLE.values():
        for cause in diagnose(findings, context):
            assert len(cause.cause) > 30
            assert len(cause.fix) > 30
            assert cause.explains


def test_likely_cause_of_one_finding_is_that_of_those_before_it():
    cause = likely(found("plateau"), [found("dead_layer", 20)], USUAL)
    assert cause is not None
    assert cause.name == "dead_units"
    assert likely(found("of_an_own_monitor"), [], USUAL) is None


def test_spike_of_long_ago_bears_on_nothing_that_comes_later():
    assert likely(found("loss_spike", 5000), [found("outlier_batch", 100)], USUAL).name == "learning_rate_too_high"
    earlier = [found("non_finite_loss", 10), found("outlier_batch", 495)]
    assert likely(found("non_finite_loss", 500), earlier, USUAL).name == "these_rows"


def test_rate_that_jumps_comes_before_rows_as_a_cause_and_a_warm_up_does_not_jump():
    recipe = HOSTS["mlp"](0).subject().recipe
    jumps = replace(recipe, learning_rate=lambda step: 1e-3 if step < 95 else 1e-1)
    warms_up = replace(recipe, learning_rate=lambda step: 1e-5 * (step + 1))
    context = context_of(jumps, 100, [1e-1], None, bad_inputs=False)
    jumped = likely(found("outlier_batch"), [], context)
    assert jumped is not None
    assert (jumped.name, jumped.cause) == words("learning_rate_too_high", "the schedule jumped")
    assert likely(found("outlier_batch"), [], context_of(warms_up, 100, [1e-3], None, False)).name == "these_rows"
    assert context_of(jumps, 300, [1e-1], None, None).rate_jumped is False


def test_rate_of_a_script_that_jumps_is_known_by_what_it_told():
    warm = [1e-5 * (step + 1) for step in range(100)]
    assert (
        "schedule" in likely(found("loss_spike"), [], context_of(None, 103, [*warm, 1.0, 1.0, 1.0], None, None)).cause
    )
    assert context_of(None, 99, warm, None, None).rate_jumped is False
    assert context_of(None, 0, [], None, None).rate_jumped is False


def test_alarm_that_was_seen_again_bears_on_what_follows_its_last_time():
    alarm = not_finite_alarm(100, float("nan"), 1.0)
    again = alarm.model_copy(update={"monitor": "outlier_batch", "last_step": 130, "count": 2})
    assert [one.step for one in of_alarms([again])] == [100, 130]
    assert diagnosed(found("non_finite_loss", 131), of_alarms([again])).also_explains == "outlier_batch at update 130"


def alarms(subject, before=lambda state: None, bad_inputs=None):
    """Train with all monitors; `before` each update something may be done to the state."""

    class Planted(Watch):
        def before_update(self, state):
            before(state)
            return super().before_update(state)

    torch.manual_seed(0)
    state = subject.state()
    monitors = all_monitors(state, subject.plan)
    recorder = Recorder(name=lambda numbers, losses: NamedRows((), bad_inputs))
    watch = Planted(state.model, MonitorsSpec(), monitors, subject.plan.last_step, recorder)
    alarm = train(state, subject.training, subject.plan, subject.recipe, lambda state, update: False, watch)
    return {one.monitor: one for one in watch.alarms}, alarm


def spoiled(outputs_times, at):
    """The MLP with outputs that grow from an update on, so that its loss jumps and then overflows."""
    setup = replace(HOSTS["mlp"](0), decay="constant", warmup=0.0, epochs=20)
    loss, calls = setup.loss_fn, []

    def losses(outputs, targets):
        calls.append(None)
        step = len(calls) - 1
        return loss(outputs * outputs_times[min(step - at, len(outputs_times) - 1)] if step >= at else outputs, targets)

    return replace(setup, loss_fn=losses).subject()


def test_training_that_ends_after_a_batch_that_stood_out_names_these_rows():
    _, alarm = alarms(spoiled((1e4, 1.0, float("nan")), 100))
    assert alarm is not None
    assert alarm.monitor == "non_finite_loss"
    assert (alarm.rule, alarm.cause) == words("these_rows", "just before values were not finite")
    assert "outlier_batch at update 100" in alarm.evidence


def test_training_that_ends_without_a_sign_before_names_an_operation():
    _, alarm = alarms(spoiled((float("nan"),), 100))
    assert alarm is not None
    assert alarm.rule == "value_not_defined"


def test_training_that_ends_at_rows_that_are_not_finite_names_them():
    _, alarm = alarms(spoiled((1e4, 1.0, float("nan")), 100), bad_inputs=True)
    assert alarm is not None
    assert alarm.rule == "rows_not_finite"


def test_plateau_of_a_dead_layer_is_told_with_the_layer_as_its_cause():
    told, alarm = alarms(FAULTS["masked_out"].make("mlp", 0).subject)
    assert alarm is None
    assert told["plateau"].rule == told["dead_layer"].rule == "dead_units"
    assert "dead_layer at update 20" in told["plateau"].evidence


def test_plateau_at_a_tiny_rate_is_told_with_the_rate_as_its_cause():
    told, _ = alarms(FAULTS["rate_tenthousandth"].make("mlp", 0).subject)
    assert told["plateau"].rule == "learning_rate_too_low"
