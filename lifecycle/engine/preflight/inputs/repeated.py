"""Do the batches of an epoch hold other rows each time, and do the first epochs meet all rows?"""

from __future__ import annotations

import math

import numpy as np

from trainworthy.lifecycle.engine.preflight.inputs.uneven import CELLS
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.check import Found
from trainworthy.lifecycle.plan import Plan

# Batches that are drawn, draws that a part of the file needs to be met for sure, and epochs that are looked at.
MOST_BATCHES, WINDOW_ROWS, REPEATED_EPOCHS = 20_000, 64, 3
NEVER = 0.01


def repeated_batch(subject: Subject) -> Found:
    """Different batches within an epoch, and all rows met over the first epochs."""
    plan = subject.plan
    epochs = max(1, min(REPEATED_EPOCHS, plan.horizon_steps // plan.steps_per_epoch))
    if plan.steps_per_epoch * epochs > MOST_BATCHES:
        epochs = 1
    per_epoch = min(plan.steps_per_epoch, MOST_BATCHES)
    drawn = [[rows_of_step(plan, e * plan.steps_per_epoch + step) for step in range(per_epoch)] for e in range(epochs)]
    again = _met_again(plan, drawn[0])
    if again:
        return Found("fail", f"{again} of the first epoch's {per_epoch} batches hold the rows of another", again, 0)
    sets = [np.flatnonzero(np.bincount(np.concatenate(batches), minlength=plan.rows)) for batches in drawn]
    met = np.flatnonzero(np.bincount(np.concatenate(sets), minlength=plan.rows))
    told = f"{len(met):,} of {plan.rows:,} rows in {'the first epoch' if epochs == 1 else f'{epochs} epochs'}"
    if per_epoch < plan.steps_per_epoch:
        return Found("pass", f"{per_epoch:,} batches, none twice; {told}")
    fault = _never(plan, sets, met)
    if fault:
        fix = "let the order run over all rows, and leave another remainder out each epoch"
        return Found("fail", f"{told}; {fault}", len(met), plan.rows, fix=fix, cause="an order over a part of the rows")
    return Found("pass", f"no batch twice; {told}", 0, 0)


def _met_again(plan: Plan, batches: list[np.ndarray]) -> int:
    """Batches with the rows of an earlier one; small ones are joined until that can't be chance."""
    # Decimal digits of the number of different windows: 12 is beyond chance for all pairs of MOST_BATCHES.
    joined = next((j for j in range(1, len(batches) // 2 + 1) if _digits(plan.rows, j * plan.batch_size) >= 12), 0)
    if not joined:
        return 0
    whole = [np.sort(np.concatenate(batches[i : i + joined])) for i in range(0, len(batches) - joined + 1, joined)]
    return len(whole) - len({one.tobytes() for one in whole})


def _digits(rows: int, chosen: int) -> float:
    if chosen >= rows:
        return 0.0
    return (math.lgamma(rows + 1) - math.lgamma(chosen + 1) - math.lgamma(rows - chosen + 1)) / math.log(10)


def _never(plan: Plan, sets: list[np.ndarray], met: np.ndarray) -> str:
    """Rows that no epoch meets, "" if it is the remainder of a last batch or the luck of the draw."""
    missed = plan.rows - len(met)
    draws = plan.steps_per_epoch * plan.batch_size
    if missed <= max(NEVER * plan.rows, plan.draws - draws if len(sets) == 1 else 0):
        return ""
    if len(sets) > 1 and all(np.array_equal(sets[0], one) for one in sets[1:]):
        return f"the same {missed:,} are left out each time"
    places = np.bincount(met * CELLS // plan.rows, minlength=CELLS)
    if draws * len(sets) >= CELLS * WINDOW_ROWS and not places.all():
        return f"none from {int((places == 0).sum())} of {CELLS} parts of the file"
    return ""


def rows_of_step(plan: Plan, step: int) -> np.ndarray:
    return plan.batch(step).cpu().numpy()
