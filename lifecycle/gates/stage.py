"""Go or no-go after a stage: the worker's answer as checks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from trainworthy.lifecycle.gates.curve_parts import PART_ROWS, curve_parts
from trainworthy.lifecycle.gates.own_trainer import trainer_check, unseen, without_gradient
from trainworthy.lifecycle.gates.references_check import references_check
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.plan import MIN_STEPS
from trainworthy.lifecycle.protocol.checks import CheckResult, at_least, at_most, holds
from trainworthy.lifecycle.protocol.results import Progress, TrainResult
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.wording import figures

RISE_STANDARD_ERRORS = 4.0
# The code of the check of a stage that the run's budget ended.
BUDGET = "budget"
RUN = "<run>"
# Behind it, evidence names rows by their keys.
ROWS_FOLLOW = "; first of "

CHECKS = {
    "smoke": ("finite", "monitors", "steps", "loss_rise", "references", "remaining_cost"),
    "pilot": (
        "finite",
        "monitors",
        "steps",
        "loss_rise",
        "references",
        "inputs_reviewed",
        "seeds",
        "data_curve",
        "remaining_cost",
    ),
    "full": ("finite", "monitors", "steps", "loss_rise", "references", "inputs_reviewed", "seeds"),
}


def training_checks(stage: str, result: TrainResult) -> tuple[CheckResult, ...]:
    """Those of the stage's CHECKS that one training alone decides."""
    checks = {
        "finite": finite_check(result),
        "monitors": monitors_check(result),
        "steps": steps_check(result),
        "loss_rise": stage_loss_rise(result),
        "references": _of_script(
            references_check(result.references, result.progress, result.device, result.curve, stage), result
        ),
    }
    return tuple(checks[name] for name in CHECKS[stage] if name in checks)


def _of_script(check: CheckResult, result: TrainResult) -> CheckResult:
    """The check of references without the advice to exchange parts, which a training script does not have."""
    if result.trainer is None or check.code != "less":
        return check
    return check.model_copy(update={"fix": fix_of("references", "less_script")})


def steps_check(result: TrainResult) -> CheckResult:
    """Whether the planned updates were made; a training that ended by itself is insufficient below MIN_STEPS."""
    made = f"{result.steps} updates on {result.rows:,} rows"
    if result.ended == "early" and result.steps < MIN_STEPS:
        told = f"it ended by itself before the {result.planned_steps} that were planned, too early to judge it"
        evidence = "; ".join([made, told, *result.notes])
        return CheckResult(
            name="steps", status="insufficient", observed=result.steps, threshold=MIN_STEPS, device=result.device,
            evidence=evidence, fix=fix_of("steps", "early"),
        )  # fmt: skip
    return at_least(
        "steps",
        result.steps,
        result.planned_steps if result.alarm is None and result.ended != "early" else MIN_STEPS,
        device=result.device,
        evidence="; ".join([made, *_budget_note(result), *result.notes]),
        fix=_steps_fix(result),
        code=BUDGET if result.ended == "budget" else "",
    )


def stage_checks(
    stage: str, result: TrainResult, spent_usd: float, still_usd: float, budget_usd: float, *other_checks: CheckResult
) -> tuple[CheckResult, ...]:
    """The stage's checks, named as in CHECKS: of the training that counts, of money, and `other_checks`.

    `still_usd` is the upper end of what the next stages may cost.
    """
    money = remaining_cost_check(spent_usd, still_usd, budget_usd)
    checks = {check.name: check for check in (*training_checks(stage, result), *other_checks, money)}
    script = () if result.trainer is None else (trainer_check(result.trainer, result.device),)
    return (*(checks[name] for name in CHECKS[stage]), *script)


def for_run(checks: Iterable[CheckResult], run_id: str) -> tuple[CheckResult, ...]:
    """The checks, with the run's id in the commands of their fixes, where stages.toml has `<run>`."""
    # As many characters as the report and the table of attempts show.
    return tuple(check.model_copy(update={"fix": check.fix.replace(RUN, run_id[:8])}) for check in checks)


def _budget_note(result: TrainResult) -> tuple[str, ...]:
    evidence = f"ended before {result.planned_steps} updates, since the run's budget was as good as spent"
    return (evidence,) if result.ended == "budget" else ()


def _steps_fix(result: TrainResult) -> str:
    if result.ended == "budget":
        return fix_of("steps", "budget")
    stopped = result.steps < result.planned_steps and result.ended == ""
    return fix_of("steps") if stopped else ""


def finite_check(result: TrainResult) -> CheckResult:
    """Fails if loss, gradient or a parameter was not finite, and that ended the stage; names the rows of that batch."""
    alarm = result.alarm
    if alarm is None and result.trainer is not None and not result.trainer.gradients:
        evidence, fix = without_gradient(result.trainer)
        evidence = f"every reported loss was finite; {evidence}"
        return CheckResult(name="finite", status="insufficient", device=result.device, evidence=evidence, fix=fix)
    if alarm is None or not alarm.monitor.startswith("non_finite"):
        finite = "loss and gradient norm were finite at every update that was made"
        return holds("finite", True, device=result.device, evidence=finite)
    shown = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in alarm.row_keys[:3])
    rows = f"{ROWS_FOLLOW}{len(alarm.row_keys)} rows: {shown}" if shown else ""
    return holds(
        "finite", False, device=result.device, observed=alarm.monitor, evidence=f"{alarm.evidence}{rows}",
        fix=alarm.fix, details=alarm.row_keys,
    )  # fmt: skip


def monitors_check(result: TrainResult) -> CheckResult:
    """Fails if an alarm ended the training, or was critical and only told; warns of any other.

    A spike that was only told is a warning where the training got over it: its loss ended at its best.
    """
    over = SPIKES if _curve_check(result.curve, result.device).status == "pass" else ()
    open_ones = [
        alarm for alarm in result.alarms
        if alarm.action == "stop"
        or (alarm.severity == "critical" and alarm.action == "warn" and alarm.monitor not in over)
    ]  # fmt: skip
    details = tuple(alarm.model_dump(mode="json") for alarm in result.alarms)
    first = sorted(result.alarms, key=lambda alarm: (alarm not in open_ones, alarm.severity != "critical", alarm.step))
    words = [
        *map(alarm_words, first[:MOST_NAMED]),
        *([f"and {len(first) - MOST_NAMED} more"] if first[MOST_NAMED:] else []),
    ]
    if not open_ones and result.trainer is not None and (unwatched := unseen(result.trainer)):
        # Warnings of what was seen say nothing of what was not.
        evidence = "; ".join([unwatched[0], *words])
        return CheckResult(
            name="monitors",
            status="insufficient",
            device=result.device,
            evidence=evidence,
            fix=unwatched[1],
            details=details,
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
MOST_NAMED = 3
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


def stage_loss_rise(result: TrainResult) -> CheckResult:
    """The check `loss_rise` of a stage. Between adversaries a loss rises and falls many times, so that none fails."""
    check = loss_rise_check(result.curve, result.device, result.progress)
    if not (result.adversarial and check.status == "fail"):
        return check
    evidence = f"{check.evidence}; some gradients are turned round, as an adversary's are: the loss tells no progress"
    return CheckResult(name="loss_rise", status="not_applicable", device=result.device, evidence=evidence)


def loss_rise_check(curve: Sequence[CurvePoint], device: str, progress: Progress | None = None) -> CheckResult:
    """Fails if the last part of the curve lies significantly above the best one: training diverged.

    All passes count: each window is the training forward's own loss, in the same mode on rows of the same kind, so that
    a rise in a later pass is one as well. What was scored beside the curve is another figure and no part of it. The
    curve counts all rows alike: where the training does not, its own loss may fall while the curve rises.
    """
    check = _curve_check(curve, device)
    if progress is not None and progress.reweighted and check.status == "fail":
        return _own_loss_check(check, curve, progress)
    return check


def _curve_check(curve: Sequence[CurvePoint], device: str) -> CheckResult:
    """The check `loss_rise` by the curve alone."""
    parts = curve_parts(curve)
    if len(parts) < 3:
        rows = sum(point.rows for point in curve)
        evidence = f"{len(curve)} windows of training over {rows:,} rows; 3 times {PART_ROWS} are needed"
        fix = fix_of("loss_rise", "rows")
        return CheckResult(name="loss_rise", status="insufficient", device=device, evidence=evidence, fix=fix)
    best, last = min(parts, key=lambda part: part.loss), parts[-1]
    # The part that is best by luck also tends to look the quietest, so it counts as at least as noisy as the others.
    usual = statistics.median(part.variance for part in parts)
    noise = math.sqrt(sum(max(part.variance, usual) / part.rows for part in (best, last)))
    ended, lowest = figures(last.loss, best.loss)
    errors = (last.loss - best.loss) / noise if noise > 0 else (0.0 if last.loss <= best.loss else math.inf)
    return at_most(
        "loss_rise",
        min(errors, 1e9),
        RISE_STANDARD_ERRORS,
        device=device,
        evidence=f"{loss_words(curve)} ended at {ended}; the best part, to step {best.step}: {lowest}",
        fix="" if errors <= RISE_STANDARD_ERRORS else fix_of("loss_rise"),
    )


def _own_loss_check(check: CheckResult, curve: Sequence[CurvePoint], progress: Progress) -> CheckResult:
    """The check of a training whose rows do not count alike, where the curve, which counts them so, rises.

    It passes where its own loss fell and the curve only ever rose, from its first part on. Where the curve fell before,
    both may have diverged from their best: how low its own loss has been is not known.
    """
    first, fall = progress.first_loss, progress.fall
    parts = curve_parts(curve)
    before, now = figures(first, first - fall.value)
    own = f"{check.evidence}; as it is trained on, the loss went from {before} to {now}"
    if fall.low <= 0:
        return check.model_copy(update={"evidence": own})
    if min(parts, key=lambda part: part.loss) is parts[0]:
        return holds("loss_rise", True, device=check.device, observed=fall.value, evidence=own)
    return check.model_copy(update={"status": "insufficient", "evidence": own})


def loss_words(curve: Sequence[CurvePoint]) -> str:
    """What the curve's last part may be called."""
    return curve[-1].figure.replace("_", " ")


def remaining_cost_check(spent_usd: float, still_usd: float, budget_usd: float) -> CheckResult:
    """Fails if what was spent and the upper end of what is still to come exceed the budget."""
    return at_most(
        "remaining_cost",
        spent_usd + still_usd,
        budget_usd,
        evidence=f"spent {spent_usd:.4f} USD, still up to {still_usd:.4f} USD",
        fix="" if spent_usd + still_usd <= budget_usd else fix_of("remaining_cost"),
    )
