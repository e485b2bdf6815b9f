"""Go or no-go after a stage: the worker's answer as checks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lifecycle.checks import CheckResult, at_least, at_most, holds
from lifecycle.jobs import Learned, TrainResult
from lifecycle.records import CurvePoint
from lifecycle.training.plan import MIN_STEPS

# Measured on flights, validation months March to December: healthy networks rise by 0.044 to 0.104,
# shuffled labels by -0.003 to 0.007, logistic regression by about as much as the network.
SHARE_OF_LINEAR = 0.25
# Without anything that logistic regression can find, a rise must at least be visible: nats a row.
SMALLEST_RISE = 0.01
# The best of 40 windows lies about 2 standard errors below the mean by chance, so 3 would stop healthy plateaus.
RISE_STANDARD_ERRORS = 4.0

CHECKS = {
    "smoke": ("finite", "steps", "loss_rise", "remaining_cost"),
    "pilot": ("finite", "steps", "loss_rise", "learned", "remaining_cost"),
    "full": ("finite", "steps", "loss_rise"),
}


def stage_checks(
    stage: str, result: TrainResult, spent_usd: float, still_usd: float, budget_usd: float
) -> tuple[CheckResult, ...]:
    """The stage's checks, named as in CHECKS. `still_usd` is the upper end of what the next stages may cost."""
    checks = {
        "finite": finite_check(result),
        "steps": at_least(
            "steps",
            result.steps,
            result.planned_steps if result.alarm is None else MIN_STEPS,
            device=result.device,
            evidence=f"{result.steps} updates on {result.rows:,} rows",
            fix="" if result.steps >= result.planned_steps else "see the check finite for what ended the stage",
        ),
        "loss_rise": loss_rise_check(result.curve, result.device),
        "learned": learned_check(result.learned, result.device),
        "remaining_cost": remaining_cost_check(spent_usd, still_usd, budget_usd),
    }
    return tuple(checks[name] for name in CHECKS[stage])


def finite_check(result: TrainResult) -> CheckResult:
    """Fails if loss or gradient was not finite; names the rows of that batch."""
    if result.alarm is None:
        return holds("finite", True, device=result.device, evidence="loss and gradient norm were finite at every step")
    alarm = result.alarm
    shown = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in alarm.row_keys[:3])
    rows = f"; first of {len(alarm.row_keys)} rows: {shown}" if shown else ""
    return holds(
        "finite", False, device=result.device, observed=alarm.what, evidence=f"{alarm.evidence}{rows}", fix=alarm.fix,
        details=alarm.row_keys,
    )  # fmt: skip


def loss_rise_check(curve: Sequence[CurvePoint], device: str) -> CheckResult:
    """Fails if the last windows lie significantly above the best one: training diverged."""
    if len(curve) < 3:
        evidence = f"{len(curve)} windows of progressive loss; 3 are needed"
        return CheckResult(name="loss_rise", status="insufficient", device=device, evidence=evidence, fix="more steps")
    best = min(curve, key=lambda point: point.loss)
    last = _pooled(curve[-max(1, len(curve) // 10) :])
    noise = math.hypot(best.standard_error, last[1])
    errors = (last[0] - best.loss) / noise if noise > 0 else (0.0 if last[0] <= best.loss else math.inf)
    return at_most(
        "loss_rise",
        min(errors, 1e9),
        RISE_STANDARD_ERRORS,
        device=device,
        evidence=f"progressive loss ended at {last[0]:.4f}; its best window was {best.loss:.4f} at step {best.step}",
        fix="" if errors <= RISE_STANDARD_ERRORS else "lower the learning rate or clip_norm, or lengthen the warm-up",
    )


def learned_check(learned: Learned | None, device: str) -> CheckResult:
    """Fails unless the network's predictions carry information within a group, by size and significance."""
    if learned is None:
        fix = "see the check finite for what ended the stage"
        return CheckResult(
            name="learned", status="insufficient", required=True, device=device, evidence="not measured", fix=fix
        )
    linear_found = learned.linear_low > 0
    threshold = SHARE_OF_LINEAR * learned.linear_rise if linear_found else SMALLEST_RISE
    evidence = (
        f"permuted within a group, predictions lose {learned.network_rise:.4f} nats a row "
        f"(95 % from {learned.network_low:.4f}); logistic regression's lose {learned.linear_rise:.4f}"
    )
    if learned.network_low > 0 and learned.network_rise >= threshold:
        return at_least("learned", learned.network_rise, threshold, device=device, evidence=evidence)
    fix = "look for labels that do not belong to their rows, a learning rate near zero, or features without information"
    if not linear_found:
        # Nothing shows that there is anything to learn, so the stage may go on, and the verdict is capped.
        return CheckResult(
            name="learned", status="insufficient", device=device, observed=learned.network_rise, threshold=threshold,
            evidence=evidence, fix=fix,
        )  # fmt: skip
    return CheckResult(
        name="learned", status="fail", device=device, observed=learned.network_rise, threshold=threshold,
        evidence=evidence, fix=fix,
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


def _pooled(points: Sequence[CurvePoint]) -> tuple[float, float]:
    """Row-weighted mean of windows and its standard error."""
    rows = sum(point.rows for point in points)
    mean = sum(point.loss * point.rows for point in points) / rows
    error = math.sqrt(sum((point.standard_error * point.rows) ** 2 for point in points)) / rows
    return mean, error
