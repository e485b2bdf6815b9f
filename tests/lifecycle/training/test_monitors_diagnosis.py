"""From findings to causes: the field's debugging table, line by line, and what follows from what."""

import pytest

from lifecycle.training.monitors.diagnosis import Context, diagnose, likely
from lifecycle.training.monitors.monitor import Finding

USUAL = Context(learning_rate=1e-3, largest_rate=1e-3, update_ratio=3e-3)


def found(monitor: str, step: int = 100, onset: int | None = None) -> Finding:
    return Finding(monitor, "critical", step, step if onset is None else onset, "symptom", "evidence")


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
