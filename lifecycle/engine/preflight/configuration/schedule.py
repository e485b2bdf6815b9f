"""The learning rate of every planned step, walked before the first one is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.check import Outcome

# Steps that are asked; of longer runs all at both ends and every so many between: 20,000 take 0.02 to 0.06 s.
WALKED = 20_000
# A share of the peak below which a rate moves nothing. A cosine's own last steps come below it: 0.02 % of a run.
ZERO = 1e-7
# A schedule may end a few steps early by rounding; one that is built for a shorter run ends much earlier.
IDLE_PASSES, IDLE_FAILS = 0.01, 0.05
# Warm-up takes 1 to 45 % of a run (one-cycle), a triangle 50 %.
LATE_PEAK, NO_PEAK = 0.6, 0.9
# How far the highest rate may lie from the declared one before the two do not mean the same.
OFF_DECLARED = 2.0
# A decay that is cut before its half, and one that has hardly begun.
UNFINISHED, UNBEGUN = 0.5, 0.9

Rates = list[tuple[int, float]]


def schedule_fits(subject: Subject) -> Outcome:
    """Walk the schedule of the whole run, from step 0 to its last planned one."""
    steps = subject.plan.last_step
    rates = walk(subject.recipe.learning_rate, steps)
    return judged(rates, steps, _declared_peak(subject))


def walk(rate: Callable[[int], float], steps: int) -> Rates:
    """(step, rate) of at most about WALKED steps, in their order."""
    if steps <= WALKED:
        return [(step, float(rate(step))) for step in range(steps)]
    ends, between = WALKED // 4, math.ceil(steps / (WALKED // 2))
    walked = {*range(ends), *range(ends, steps - ends, between), *range(steps - ends, steps)}
    return [(step, float(rate(step))) for step in sorted(walked)]


def judged(rates: Rates, steps: int, declared: float | None) -> Outcome:
    """What the rates say; `declared` is training.optimizer.learning_rate, None if it is not known."""
    bad = next(((step, rate) for step, rate in rates if not 0 <= rate < math.inf), None)
    if bad is not None:
        return Outcome("fail", f"the rate of step {bad[0]:,} is {bad[1]}", fix="give a finite rate, zero or above")
    peak = max(rate for _, rate in rates)
    if peak == 0:
        return Outcome("fail", f"the rate is zero at all {steps:,} steps", 0.0)
    for look in (_idle, _never_warm, _cut, _off_declared):
        fault = look(rates, steps, peak, declared)
        if fault is not None:
            return fault
    at = next(step for step, rate in rates if rate >= 0.99 * peak)
    end = rates[-1][1]
    return Outcome(
        "pass", f"{steps:,} steps: the peak {peak:.3g} is met at step {at:,}, the last rate is {end:.3g}", peak
    )


def _idle(rates: Rates, steps: int, peak: float, declared: float | None) -> Outcome | None:
    """Steps that train nothing. One alone is the trough of a restart, the first of a warm-up or the very last."""
    runs = [run for run in _zero_runs(rates, steps, ZERO * peak) if run[1] - run[0] > 1]
    idle = sum(last - first for first, last in runs)
    if idle <= max(1, IDLE_PASSES * steps):
        return None
    first, last = max(runs, key=lambda run: run[1] - run[0])
    where = "from there to the end" if last == steps else f"to step {last - 1:,}"
    evidence = f"{idle:,} of {steps:,} steps train nothing: the rate is zero from step {first:,}, {where}"
    cause = "the schedule is built for another number of steps than the run has"
    return Outcome(
        "fail" if idle > IDLE_FAILS * steps else "insufficient", evidence, idle / steps, IDLE_FAILS, cause=cause
    )


def _zero_runs(rates: Rates, steps: int, zero: float) -> Iterator[tuple[int, int]]:
    """First step and the one after the last of each stretch at zero; a step that was not asked is as the one before."""
    first: int | None = None
    for step, rate in rates:
        if rate <= zero and first is None:
            first = step
        if rate > zero and first is not None:
            yield first, step
            first = None
    if first is not None:
        yield first, steps


def _never_warm(rates: Rates, steps: int, peak: float, declared: float | None) -> Outcome | None:
    """A rate that only rises: with restarts or cycles there was a peak before."""
    at = next(step for step, rate in rates if rate >= 0.99 * peak)
    if at < LATE_PEAK * steps or not _rises([rate for step, rate in rates if step <= at]):
        return None
    evidence = f"the rate rises until step {at:,} of {steps:,}, {at / steps:.0%} of the run"
    cause = "the warm-up is as long as the run: counted in other steps, or for a longer run"
    return Outcome("fail" if at >= NO_PEAK * steps else "insufficient", evidence, at / steps, NO_PEAK, cause=cause)


def _cut(rates: Rates, steps: int, peak: float, declared: float | None) -> Outcome | None:
    """A decay that is still speeding up when the run ends, as a cosine before its half.

    Decays that level off (exponential, inverse square root), steps and plateaus are whole at any length.
    """
    top = next(number for number, (_, rate) in enumerate(rates) if rate >= peak * (1 - 1e-9))
    falling = rates[top:]
    values, end = [rate for _, rate in falling], rates[-1][1]
    if len(values) < 10 or not UNFINISHED * peak < end < 0.9995 * peak or not end < values[-2]:
        return None
    half = (falling[0][0] + steps - 1) / 2
    middle = min(falling, key=lambda point: abs(point[0] - half))[1]
    faster = middle > (peak + end) / 2 + 0.02 * (peak - end)
    if not (faster and _rises(values[::-1]) and _rises([rate for _, rate in rates[:top]])):
        return None
    evidence = (
        f"the rate is still falling, faster and faster, when the run ends: the last is {end / peak:.0%} of the peak"
    )
    cause = "the decay is built for more steps than the run has"
    return Outcome("fail" if end > UNBEGUN * peak else "insufficient", evidence, end / peak, UNFINISHED, cause=cause)


def _off_declared(rates: Rates, steps: int, peak: float, declared: float | None) -> Outcome | None:
    if declared is None or 1 / OFF_DECLARED <= peak / declared <= OFF_DECLARED:
        return None
    evidence = f"the highest rate is {peak:.3g}, and training.optimizer.learning_rate declares {declared:.3g}"
    fix = "let learning_rate give rates, not factors, and meet the declared one; or declare the rate that is meant"
    return Outcome("insufficient", evidence, peak, declared, cause="one of the two is not what is meant", fix=fix)


def _rises(values: Sequence[float]) -> bool:
    """True if no value is below the one before, beyond rounding."""
    return all(after >= before * (1 - 1e-6) for before, after in pairwise(values))


def _declared_peak(subject: Subject) -> float | None:
    """What make_optimizers set the groups' rates by; None for optimizers that were made otherwise."""
    groups = [group for optimizer in subject.optimizers(subject.build()) for group in optimizer.param_groups]
    known = [group["lr"] / group["lr_scale"] for group in groups if group.get("lr_scale")]
    return float(known[0]) if known else None
