"""From what monitors found to what is the matter: causes in words, the likeliest first, each with its fix.

A pure function of findings and of what is known beside them. A rule is told by the findings that it explains; rules
stand in the order in which one explains the other, so that a cause comes before its consequences: what is dead gives
constant answers, and a training of constant answers has a plateau.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from trainworthy.lifecycle.engine.training.monitors.evidence import JUMP, JUST_BEFORE, LATELY, Context, Evidence, Rule
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.state import Recipe
from trainworthy.lifecycle.gates.monitor_words import cause_of
from trainworthy.lifecycle.protocol.training_figures import Alarm

# Change over norm below which a training at its full rate goes nowhere: 138 healthy ones reached 0.0005 or more.
TINY_RATIO = 3e-5
NOT_FINITE = ("non_finite_loss", "non_finite_gradient", "non_finite_parameter", "non_finite_activation")
SPIKES = ("loss_spike", "gradient_spike", "outlier_batch")
LARGE = ("update_ratio", "exploding_gradients")
STUCK = ("plateau", "constant_predictions", "zero_gradient", "vanishing_gradients")


def _rule(name: str, holds: Callable[[Evidence], object] | None = None, case: str = "") -> Rule:
    words = cause_of(name, case)
    return Rule(name, holds, words.cause, words.fix, words.explains)


RULES: tuple[Rule, ...] = (
    # ---- what is wrong whatever the network does ----
    _rule("processes_apart"),
    _rule("batch_repeats"),
    _rule("not_in_optimizer"),
    _rule("gradients_not_zeroed"),
    _rule("stale_gradients"),
    _rule("gradient_is_no_slope", lambda evidence: evidence.context.ascends, "updates go uphill"),
    _rule(
        "learning_rate_too_high",
        lambda evidence: (
            evidence.context.rate_jumped
            and not evidence.context.bad_inputs
            and evidence.any(*NOT_FINITE, *SPIKES, *LARGE, "rise_above_best")
        ),
        "the schedule jumped",
    ),
    # ---- NaN loss ----
    _rule("rows_not_finite", lambda evidence: evidence.context.bad_inputs),
    _rule(
        "overflow_of_half_precision",
        lambda evidence: evidence.context.precision == "fp16" and evidence.any(*NOT_FINITE),
    ),
    _rule(
        "learning_rate_too_high",
        lambda evidence: evidence.any(*NOT_FINITE) and evidence.before((*LARGE, "rise_above_best"), NOT_FINITE),
        "before values overflowed",
    ),
    _rule(
        "these_rows",
        lambda evidence: evidence.any(*NOT_FINITE) and evidence.before(SPIKES, NOT_FINITE, JUST_BEFORE),
        "just before values were not finite",
    ),
    _rule(
        "derivative_not_defined",
        lambda evidence: (
            evidence.any("non_finite_gradient") and not evidence.any("non_finite_loss", "non_finite_parameter")
        ),
    ),
    _rule(
        "optimizer_makes_it",
        lambda evidence: evidence.any("non_finite_parameter") and not evidence.any("non_finite_loss"),
    ),
    _rule("value_not_defined", lambda evidence: evidence.any(*NOT_FINITE)),
    # ---- it does not learn ----
    _rule("gradient_is_no_slope", lambda evidence: evidence.context.gradient_wrong),
    _rule(
        "learning_rate_too_high",
        lambda evidence: (
            evidence.any("update_ratio")
            or (evidence.any("exploding_gradients") and evidence.any("rise_above_best", "loss_spike"))
        ),
        "large updates",
    ),
    _rule("updates_rounded_away"),
    # Weights that have blown up shrink as well.
    _rule(
        "weights_decay_away", lambda evidence: evidence.any("weights_shrink") and not evidence.any("loss_spike", *LARGE)
    ),
    _rule(
        "schedule_at_zero",
        lambda evidence: (
            (unchanged := evidence.any("unchanged_layer"))
            and (
                unchanged.known_cause == "schedule_at_zero"
                or evidence.context.learning_rate <= 1e-6 * evidence.context.largest_rate
            )
        ),
    ),
    _rule("dead_units"),
    _rule("gradient_lost"),
    _rule("evaluation_stays_on"),
    _rule("detached_layer", lambda evidence: evidence.any("no_gradient")),
    _rule("gradient_blocked", lambda evidence: evidence.any("zero_gradient")),
    _rule("frozen_layer", lambda evidence: evidence.any("unchanged_layer")),
    _rule("collapsed_answers", lambda evidence: evidence.any("constant_predictions")),
    _rule("layer_rate", lambda evidence: evidence.any("layer_left_behind", "layer_updates_too_large")),
    _rule("vanishing_gradients", lambda evidence: evidence.any("vanishing_gradients")),
    _rule(
        "learning_rate_too_low",
        lambda evidence: (
            evidence.any("plateau")
            and evidence.context.update_ratio is not None
            and evidence.context.update_ratio < TINY_RATIO
        ),
    ),
    # ---- it gets worse ----
    _rule(
        "these_rows",
        lambda evidence: evidence.any("outlier_batch") and not evidence.any("rise_above_best", "gradient_spike"),
        "one batch",
    ),
    _rule(
        "a_game",
        lambda evidence: (
            evidence.context.game
            and evidence.any("loss_spike", "gradient_spike", "exploding_gradients", "rise_above_best")
        ),
    ),
    _rule(
        "rows_of_another_kind",
        lambda evidence: evidence.any("rise_above_best") and not evidence.any("gradient_spike", "exploding_gradients"),
    ),
    _rule(
        "learning_rate_too_high",
        lambda evidence: evidence.any("gradient_spike", "loss_spike", "exploding_gradients"),
        "no more is known",
    ),
    _rule("overfitting"),
    _rule("labels_without_signal"),
    # ---- it is slow, or ends ----
    _rule("memory_leak"),
    _rule("loaders_too_slow", lambda evidence: evidence.any("data_wait")),
    _rule("hang"),
    _rule("gpu_waits", lambda evidence: evidence.any("gpu_idle")),
    _rule("slower"),
)


__all__ = ["Cause", "Context", "Diagnosis", "context_of", "diagnose", "diagnosed", "likely", "of_alarms"]

NO_CONTEXT = Context()
# Of the schedule so far, for its largest rate.
RATES_LOOKED_AT = 200


@dataclass(frozen=True)
class Cause:
    """What is the matter, and what to do. `explains` are the monitors whose findings follow from it."""

    name: str
    cause: str
    fix: str
    explains: tuple[str, ...]


def diagnose(findings: Sequence[Finding], context: Context) -> tuple[Cause, ...]:
    """The causes of all that was found, the likeliest first; () of nothing.

    What an earlier cause explains is no reason for a later one.
    """
    left = {finding.monitor: finding for finding in sorted(findings, key=lambda finding: -finding.step)}
    causes = []
    for rule in RULES:
        holds = rule.explains[0] in left if rule.holds is None else rule.holds(Evidence(left, context))
        if holds and any(name in left for name in rule.explains):
            explained = tuple(name for name in rule.explains if name in left)
            causes.append(Cause(rule.name, rule.cause, rule.fix, explained))
            left = {name: finding for name, finding in left.items() if name not in explained}
    return tuple(causes)


def likely(finding: Finding, before: Sequence[Finding], context: Context) -> Cause | None:
    """The cause of one finding, in the light of those before it; None of a monitor that no rule knows.

    What passes by, as a spike does, bears on what follows at once; what lasts, as a dead layer, bears on all.
    """
    since = finding.onset - JUST_BEFORE
    bearing = [earlier for earlier in before if earlier.monitor not in (*NOT_FINITE, *SPIKES) or earlier.step >= since]
    causes = diagnose([*bearing, finding], context)
    return next((cause for cause in causes if finding.monitor in cause.explains), None)


class Diagnosis(NamedTuple):
    """The likeliest cause of a finding: the rule that names it, cause and fix in words, and what else it explains."""

    rule: str = ""
    cause: str = ""
    fix: str = ""
    also_explains: str = ""


def diagnosed(finding: Finding, before: Sequence[Finding] = (), context: Context = NO_CONTEXT) -> Diagnosis:
    """The likeliest cause of a finding; all "" where no rule names one."""
    cause = likely(finding, before, context)
    if cause is None:
        return Diagnosis()
    newest = {earlier.monitor: earlier.step for earlier in before if earlier.monitor != finding.monitor}
    also_explains = [f"{name} at update {newest[name]}" for name in cause.explains if name in newest]
    return Diagnosis(cause.name, cause.cause, cause.fix, ", ".join(also_explains))


def context_of(
    recipe: Recipe | None, step: int, rates: Sequence[float], update_ratio: float | None, bad_inputs: bool | None,
    game: bool = False,
) -> Context:  # fmt: skip
    """What is known beside findings at an update; `rates` are the newest updates', this one's last."""
    learning_rate = rates[-1] if rates else 0.0
    if recipe is None:
        # A script's schedule is known by what it told.
        newest, before = rates[-LATELY - 1 :], rates[: -LATELY - 1]
        jumped = _jumped(max(before, default=0.0), newest)
        return Context(learning_rate, max(rates, default=0.0), "fp32", update_ratio, bad_inputs, jumped, game)
    largest = max(learning_rate, *map(recipe.learning_rate, range(0, step + 1, 1 + step // RATES_LOOKED_AT)))
    first = max(0, step - LATELY)
    newest = [recipe.learning_rate(past_step) for past_step in range(first, step + 1)]
    earlier = max(map(recipe.learning_rate, range(0, first + 1, 1 + first // RATES_LOOKED_AT)))
    jumped = _jumped(earlier, newest)
    return Context(learning_rate, largest, recipe.precision, update_ratio, bad_inputs, jumped, game)


def _jumped(earlier: float, newest: Sequence[float]) -> bool:
    """True if one of the newest rates is JUMP times the highest before it."""
    highest = accumulate(newest, max, initial=earlier)
    return any(after > JUMP * before > 0 for before, after in zip(highest, newest, strict=False))


def of_alarms(alarms: Sequence[Alarm]) -> list[Finding]:
    """What was found, of the alarms that tell it: one that was seen again counts where it was seen last, too."""
    findings = []
    for alarm in alarms:
        first = Finding(
            alarm.monitor, alarm.severity, alarm.step, alarm.onset, alarm.symptom, alarm.evidence, alarm.where
        )
        again = alarm.last_step > alarm.step
        findings += [first, replace(first, step=alarm.last_step, onset=alarm.last_step)] if again else [first]
    return findings
