"""When which cause of gates/monitors.toml holds: one table, in the order in which rules are tried."""

from __future__ import annotations

from collections.abc import Callable

from trainworthy.lifecycle.engine.training.monitors.told import JUST_BEFORE, Rule, Told
from trainworthy.lifecycle.gates.monitor_words import cause_of

# Change over norm below which a training at its full rate goes nowhere: 138 healthy ones reached 0.0005 or more.
TINY_RATIO = 3e-5
NOT_FINITE = ("non_finite_loss", "non_finite_gradient", "non_finite_parameter", "non_finite_activation")
SPIKES = ("loss_spike", "gradient_spike", "outlier_batch")
LARGE = ("update_ratio", "exploding_gradients")
STUCK = ("plateau", "constant_predictions", "zero_gradient", "vanishing_gradients")


def _rule(name: str, holds: Callable[[Told], object] | None = None, case: str = "") -> Rule:
    words = cause_of(name, case)
    return Rule(name, holds, words.cause, words.fix, words.explains)


RULES: tuple[Rule, ...] = (
    # ---- what is wrong whatever the network does ----
    _rule("processes_apart"),
    _rule("batch_repeats"),
    _rule("not_in_optimizer"),
    _rule("gradients_not_zeroed"),
    _rule("stale_gradients"),
    _rule(
        "learning_rate_too_high",
        lambda told: (
            told.context.rate_jumped
            and not told.context.bad_inputs
            and told.any(*NOT_FINITE, *SPIKES, *LARGE, "rise_above_best")
        ),
        "the schedule jumped",
    ),
    # ---- NaN loss ----
    _rule("rows_not_finite", lambda told: told.context.bad_inputs),
    _rule("overflow_of_half_precision", lambda told: told.context.precision == "fp16" and told.any(*NOT_FINITE)),
    _rule(
        "learning_rate_too_high",
        lambda told: told.any(*NOT_FINITE) and told.before((*LARGE, "rise_above_best"), NOT_FINITE),
        "before values overflowed",
    ),
    _rule(
        "these_rows",
        lambda told: told.any(*NOT_FINITE) and told.before(SPIKES, NOT_FINITE, JUST_BEFORE),
        "just before values were not finite",
    ),
    _rule(
        "derivative_not_defined",
        lambda told: told.any("non_finite_gradient") and not told.any("non_finite_loss", "non_finite_parameter"),
    ),
    _rule("optimizer_makes_it", lambda told: told.any("non_finite_parameter") and not told.any("non_finite_loss")),
    _rule("value_not_defined", lambda told: told.any(*NOT_FINITE)),
    # ---- it does not learn ----
    _rule(
        "learning_rate_too_high",
        lambda told: (
            told.any("update_ratio") or (told.any("exploding_gradients") and told.any("rise_above_best", "loss_spike"))
        ),
        "large updates",
    ),
    _rule("updates_rounded_away"),
    # Weights that have blown up shrink as well.
    _rule("weights_decay_away", lambda told: told.any("weights_shrink") and not told.any("loss_spike", *LARGE)),
    _rule(
        "schedule_at_zero",
        lambda told: told.any("unchanged_layer") and told.context.learning_rate <= 1e-6 * told.context.largest_rate,
    ),
    _rule("dead_units"),
    _rule("detached_layer", lambda told: told.any("no_gradient")),
    _rule("gradient_blocked", lambda told: told.any("zero_gradient")),
    _rule("frozen_layer", lambda told: told.any("unchanged_layer")),
    _rule("collapsed_answers", lambda told: told.any("constant_predictions")),
    _rule("layer_rate", lambda told: told.any("layer_left_behind", "layer_updates_too_large")),
    _rule("vanishing_gradients", lambda told: told.any("vanishing_gradients")),
    _rule(
        "learning_rate_too_low",
        lambda told: (
            told.any("plateau") and told.context.update_ratio is not None and told.context.update_ratio < TINY_RATIO
        ),
    ),
    # ---- it gets worse ----
    _rule(
        "these_rows",
        lambda told: told.any("outlier_batch") and not told.any("rise_above_best", "gradient_spike"),
        "one batch",
    ),
    _rule("a_game", lambda told: told.context.game and told.any("loss_spike", "gradient_spike", "rise_above_best")),
    _rule(
        "rows_of_another_kind",
        lambda told: told.any("rise_above_best") and not told.any("gradient_spike", "exploding_gradients"),
    ),
    _rule(
        "learning_rate_too_high",
        lambda told: told.any("gradient_spike", "loss_spike", "exploding_gradients"),
        "no more is known",
    ),
    _rule("overfitting"),
    _rule("labels_without_signal"),
    # ---- it is slow, or ends ----
    _rule("memory_leak"),
    _rule("loaders_too_slow", lambda told: told.any("data_wait")),
    _rule("hang"),
    _rule("gpu_waits", lambda told: told.any("gpu_idle")),
    _rule("slower"),
)
