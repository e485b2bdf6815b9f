"""Go or no-go after a stage: the worker's answer as checks."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle.checks import CheckResult, at_least, at_most, holds
from lifecycle.jobs import Learned, TrainResult
from lifecycle.records import Alarm, CurvePoint
from lifecycle.trainers.checks import TELL, trainer_check, unseen
from lifecycle.training.plan import MIN_STEPS

# Measured on flights, validation months March to December: healthy networks rise by 0.044 to 0.104,
# shuffled labels by -0.003 to 0.007, logistic regression by about as much as the network.
SHARE_OF_LINEAR = 0.25
# What a rise must be at least, as a share of the label's entropy: on flights 0.02 × 0.5 nats = 0.01.
SMALLEST_SHARE = 0.02
# Of the training label prior's loss on the validation rows. Measured on flights in November: healthy 0.84, learning
# rate × 100 1.62, × 1000 5.0; in a month whose base rate moved a healthy network lay a little above 1.
MOST_OF_PRIOR = 1.25
# Below this share of the prior's loss a network knows something without having moved: it was trained before.
TRAINED_BEFORE = 0.98
# Below it a network that has learned nothing may only have been stopped too early.
FEW_UPDATES = 100
# How many standard errors the progressive loss must fall by to count as moved.
FALL_STANDARD_ERRORS = 3.0
# The curve is judged in tenths. Single windows of few rows gave 1 to 50 % false alarms on simulated plateaus; tenths of
# at least 30 rows reach 3.7 standard errors in 12,000 of them (batches of 1 to 128, positives of 2 to 50 %).
PARTS, PART_ROWS = 10, 30
RISE_STANDARD_ERRORS = 4.0

CHECKS = {
    "smoke": ("finite", "monitors", "steps", "loss_rise", "remaining_cost"),
    "pilot": (
        "finite",
        "monitors",
        "steps",
        "loss_rise",
        "learned",
        "beyond_linear",
        "seeds",
        "data_curve",
        "remaining_cost",
    ),
    "full": ("finite", "monitors", "steps", "loss_rise", "seeds"),
}


def training_checks(stage: str, result: TrainResult) -> tuple[CheckResult, ...]:
    """Those of the stage's CHECKS that one training alone decides."""
    checks = {
        "finite": finite_check(result),
        "monitors": monitors_check(result),
        "steps": at_least(
            "steps",
            result.steps,
            result.planned_steps if result.alarm is None and result.ended != "early" else MIN_STEPS,
            device=result.device,
            evidence="; ".join(
                [f"{result.steps} updates on {result.rows:,} rows", *_budget_note(result), *result.notes]
            ),
            fix=_steps_fix(result),
        ),
        "loss_rise": loss_rise_check(result.curve, result.device),
        "learned": learned_check(result.learned, result.device, result.curve),
        "beyond_linear": beyond_linear_check(result.learned, result.device),
    }
    return tuple(checks[name] for name in CHECKS[stage] if name in checks)


def stage_checks(
    stage: str, result: TrainResult, spent_usd: float, still_usd: float, budget_usd: float, *beside: CheckResult
) -> tuple[CheckResult, ...]:
    """The stage's checks, named as in CHECKS: of the training that counts, of money, and those `beside` it.

    `still_usd` is the upper end of what the next stages may cost.
    """
    money = remaining_cost_check(spent_usd, still_usd, budget_usd)
    checks = {check.name: check for check in (*training_checks(stage, result), *beside, money)}
    script = () if result.trainer is None else (trainer_check(result.trainer, result.device),)
    return (*(checks[name] for name in CHECKS[stage]), *script)


def _budget_note(result: TrainResult) -> tuple[str, ...]:
    told = f"ended before {result.planned_steps} updates, since the run's budget was as good as spent"
    return (told,) if result.ended == "budget" else ()


def _steps_fix(result: TrainResult) -> str:
    if result.ended == "budget":
        return "raise budget.run_usd, and the stage goes on from its checkpoint; or train for fewer epochs"
    stopped = result.steps < result.planned_steps and result.ended == ""
    return "see the check finite for what ended the stage" if stopped else ""


def finite_check(result: TrainResult) -> CheckResult:
    """Fails if loss, gradient or a parameter was not finite, and that ended the stage; names the rows of that batch."""
    alarm = result.alarm
    if alarm is None and result.trainer is not None and not result.trainer.gradients:
        told = f"every loss that was told was finite; {result.trainer.file} told no gradient"
        return CheckResult(name="finite", status="insufficient", device=result.device, evidence=told, fix=TELL)
    if alarm is None or not alarm.monitor.startswith("non_finite"):
        finite = "loss and gradient norm were finite at every update that was made"
        return holds("finite", True, device=result.device, evidence=finite)
    shown = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in alarm.row_keys[:3])
    rows = f"; first of {len(alarm.row_keys)} rows: {shown}" if shown else ""
    return holds(
        "finite", False, device=result.device, observed=alarm.monitor, evidence=f"{alarm.evidence}{rows}",
        fix=alarm.fix, details=alarm.row_keys,
    )  # fmt: skip


def monitors_check(result: TrainResult) -> CheckResult:
    """Fails if an alarm ended the training, or was critical and only told; warns of any other.

    A spike that was only told is a warning where the training got over it: its loss ended at its best.
    """
    over = SPIKES if loss_rise_check(result.curve, result.device).status == "pass" else ()
    open_ones = [
        one for one in result.alarms
        if one.action == "stop" or (one.severity == "critical" and one.action == "warn" and one.monitor not in over)
    ]  # fmt: skip
    details = tuple(alarm.model_dump(mode="json") for alarm in result.alarms)
    first = sorted(result.alarms, key=lambda one: (one not in open_ones, one.severity != "critical", one.step))
    words = [
        *map(alarm_words, first[:MOST_TOLD]),
        *([f"and {len(first) - MOST_TOLD} more"] if first[MOST_TOLD:] else []),
    ]
    if not open_ones and result.trainer is not None and (seen := unseen(result.trainer)):
        # Warnings of what was seen say nothing of what was not.
        told = "; ".join([seen[0], *words])
        return CheckResult(
            name="monitors", status="insufficient", device=result.device, evidence=told, fix=seen[1], details=details
        )
    if not result.alarms:
        return holds("monitors", True, device=result.device, evidence="no alarm")
    # What `finite` fails of is told there: once is enough.
    fix = "as the check finite says" if first[0] == result.alarm and finite_check(result).stops else first[0].fix
    return holds(
        "monitors", False, severity="error" if open_ones else "warning", device=result.device,
        observed=len(result.alarms), evidence="; ".join(words), fix=fix, details=details,
    )  # fmt: skip


# Alarms in a check's evidence; its details have them all.
MOST_TOLD = 3
SPIKES = ("loss_spike", "gradient_spike")
DONE = {
    "warn": "", "skip_batch": ", the batch was left out", "lower_rate": ", the learning rate was lowered",
    "roll_back": ", the training went back and left out the batches since", "stop": ", the training stopped",
}  # fmt: skip


def alarm_words(alarm: Alarm) -> str:
    """An alarm as half a sentence: what, where, how often, and what was done."""
    where = f" in {', '.join(alarm.where)}" if alarm.where else ""
    often = f", {alarm.count} times until step {alarm.last_step}" if alarm.count > 1 else ""
    return f"step {alarm.step}: {alarm.symptom}{where}{often}{DONE[alarm.action]}"


def loss_rise_check(curve: Sequence[CurvePoint], device: str) -> CheckResult:
    """Fails if the last part of the curve lies significantly above the best one: training diverged.

    All passes count: each window is the training forward's own loss, in the same mode on rows of the same kind, so that
    a rise in a later pass is one as well. What was scored beside the curve is another figure and no part of it.
    """
    parts = _parts(curve)
    if len(parts) < 3:
        rows = sum(point.rows for point in curve)
        evidence = f"{len(curve)} windows of training over {rows:,} rows; 3 times {PART_ROWS} are needed"
        fix = "a larger fraction in stages, more epochs or a larger batch"
        return CheckResult(name="loss_rise", status="insufficient", device=device, evidence=evidence, fix=fix)
    best, last = min(parts, key=lambda part: part.loss), parts[-1]
    # The part that is best by luck also tends to look the quietest, so it counts as at least as noisy as the others.
    usual = statistics.median(part.variance for part in parts)
    noise = math.sqrt(sum(max(part.variance, usual) / part.rows for part in (best, last)))
    errors = (last.loss - best.loss) / noise if noise > 0 else (0.0 if last.loss <= best.loss else math.inf)
    return at_most(
        "loss_rise",
        min(errors, 1e9),
        RISE_STANDARD_ERRORS,
        device=device,
        evidence=f"{loss_words(curve)} ended at {last.loss:.4f}; the best part, to step {best.step}: {best.loss:.4f}",
        fix="" if errors <= RISE_STANDARD_ERRORS else "lower the learning rate or clip_norm, or lengthen the warm-up",
    )


def learned_check(learned: Learned | None, device: str, curve: Sequence[CurvePoint]) -> CheckResult:
    """Passes if the network's predictions carry information within a group, by size and significance.

    An untrained network ranks a little by luck, so its progressive loss must have fallen as well, or it
    must have been trained before. Else the check fails if there is something to find, since logistic
    regression finds it on the validation rows, or if there is measurably nothing; it is insufficient if
    the rows cannot tell.
    """
    if learned is None:
        fix = "see the checks finite and steps for what ended the stage"
        return CheckResult(
            name="learned", status="insufficient", required=True, device=device, evidence="not measured", fix=fix
        )
    smallest = SMALLEST_SHARE * learned.label_entropy
    linear_found = learned.linear_low > 0
    threshold = max(smallest, SHARE_OF_LINEAR * learned.linear_rise if linear_found else 0.0)
    evidence = (
        f"permuted within a group, predictions lose {learned.network_rise:.4f} nats a row "
        f"(95 % from {learned.network_low:.4f}); logistic regression's lose {learned.linear_rise:.4f}"
    )
    if not learned.network_loss <= MOST_OF_PRIOR * learned.prior_loss:
        return _overconfident(learned, device)
    if learned.network_low > 0 and learned.network_rise >= threshold:
        if not _moved(curve) and learned.network_loss > TRAINED_BEFORE * learned.prior_loss:
            return _unmoved(learned, device, curve)
        return at_least("learned", learned.network_rise, threshold, device=device, evidence=evidence)
    fix = _few_updates(curve)
    fix += (
        "look for labels that do not belong to their rows, a learning rate near zero, or features without information"
    )
    highest = (
        2 * learned.network_rise - learned.network_low,
        2 * learned.linear_rise - learned.linear_low,
    )
    if not linear_found and max(highest) >= smallest:
        # The rows cannot tell whether there is anything to learn: the stage goes on, and the verdict is capped.
        return CheckResult(
            name="learned", status="insufficient", device=device, observed=learned.network_rise, threshold=threshold,
            evidence=evidence, fix=fix,
        )  # fmt: skip
    return CheckResult(
        name="learned", status="fail", device=device, observed=learned.network_rise, threshold=threshold,
        evidence=evidence, fix=fix,
    )  # fmt: skip


def loss_words(curve: Sequence[CurvePoint]) -> str:
    """What the curve's last part may be called."""
    return curve[-1].figure.replace("_", " ")


def beyond_linear_check(learned: Learned | None, device: str) -> CheckResult:
    """Warns if the network's predictions carry no more within a group than logistic regression's.

    A model that is linear by nature does not, and is no fault: it goes on, and the benchmark judges it after full.
    """
    if learned is None or learned.beyond_linear is None:
        return CheckResult(
            name="beyond_linear", status="insufficient", severity="warning", device=device, evidence="not measured",
            fix="see the check finite for what ended the stage",
        )  # fmt: skip
    found, smallest = learned.beyond_linear, SMALLEST_SHARE * learned.label_entropy
    evidence = (
        f"permuted within a group, the network's predictions lose {found.value:+.4f} nats a row more than logistic "
        f"regression's [{found.low:+.4f}, {found.high:+.4f}]"
    )
    status = "pass" if found.low > 0 else "fail" if found.high < smallest else "insufficient"
    return CheckResult(
        name="beyond_linear", status=status, severity="warning", device=device, observed=found.value, threshold=0.0,
        evidence=evidence,
        fix="" if status == "pass" else "consider logistic regression; the benchmark compares the two after full",
    )  # fmt: skip


def _moved(curve: Sequence[CurvePoint]) -> bool:
    """True if the curve's last part lies significantly below its first one."""
    parts = _parts(curve)
    if len(parts) < 2:
        return False
    noise = math.sqrt(sum(part.variance / part.rows for part in (parts[0], parts[-1])))
    return parts[0].loss - parts[-1].loss > FALL_STANDARD_ERRORS * noise


def _unmoved(learned: Learned, device: str, curve: Sequence[CurvePoint]) -> CheckResult:
    """A failed `learned`: the predictions rank, but training did not make them."""
    return CheckResult(
        name="learned", status="fail", device=device,
        observed=learned.network_loss, threshold=TRAINED_BEFORE * learned.prior_loss,
        evidence=f"the loss while training did not fall, and the validation loss of {learned.network_loss:.4f} is not "
        f"below {learned.prior_loss:.4f}, the loss of the training rows' share of positives",
        fix=f"{_few_updates(curve)}raise the learning rate, or look for parameters that the optimizer does not hold",
    )  # fmt: skip


def _few_updates(curve: Sequence[CurvePoint]) -> str:
    """What a fix begins with where the likeliest cause is a short training; "" elsewhere."""
    made = curve[-1].step if curve else 0
    return f"{made} updates are few: more epochs or a smaller batch; else " if made < FEW_UPDATES else ""


def _overconfident(learned: Learned, device: str) -> CheckResult:
    """A failed `learned`: a permutation hurts wild predictions most of all, so the rise alone would praise them."""
    return CheckResult(
        name="learned", status="fail", device=device,
        observed=learned.network_loss, threshold=MOST_OF_PRIOR * learned.prior_loss,
        evidence=f"the loss of {learned.network_loss:.4f} is far above {learned.prior_loss:.4f}, the loss of always "
        "predicting the training rows' share of positives",
        fix="lower the learning rate, or train the pilot for more steps",
    )  # fmt: skip


def remaining_cost_check(spent_usd: float, still_usd: float, budget_usd: float) -> CheckResult:
    """Fails if what was spent and the upper end of what is still to come exceed the budget."""
    return at_most(
        "remaining_cost",
        spent_usd + still_usd,
        budget_usd,
        evidence=f"spent {spent_usd:.4f} USD, still up to {still_usd:.4f} USD",
        fix="" if spent_usd + still_usd <= budget_usd else "raise budget.run_usd or train for fewer epochs",
    )


@dataclass(frozen=True)
class _Part:
    """Windows taken together: last step, rows, mean loss and variance of a row's loss."""

    step: int
    rows: int
    loss: float
    variance: float


def _parts(curve: Sequence[CurvePoint]) -> list[_Part]:
    """The curve in at most PARTS parts of about equally many windows, on average of PART_ROWS rows or more."""
    count = min(PARTS, len(curve), sum(point.rows for point in curve) // PART_ROWS)
    cuts = [round(number * len(curve) / count) for number in range(count + 1)] if count else [0]
    return [_pooled(curve[start:end]) for start, end in itertools.pairwise(cuts)]


def _pooled(points: Sequence[CurvePoint]) -> _Part:
    rows = sum(point.rows for point in points)
    loss = sum(point.loss * point.rows for point in points) / rows
    # Exact: a window's variance is its squared standard error times its rows, and means differ between windows.
    squared = sum((point.standard_error**2 * point.rows + point.loss**2) * point.rows for point in points) / rows
    return _Part(step=points[-1].step, rows=rows, loss=loss, variance=max(0.0, squared - loss**2))
