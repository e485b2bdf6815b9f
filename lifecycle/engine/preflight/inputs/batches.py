"""Is every batch a fair draw of the rows? The plan alone is asked: nothing is trained.

Batches are joined to windows of at least WINDOW_ROWS draws, since a batch of one row holds one label. A window's
labels, and the places of its rows in the file, are counted and held against those of all windows together: whatever
is drawn more often on purpose is more often in every window.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainworthy.lifecycle.engine.preflight.inputs.repeated import repeated_batch, rows_of_step
from trainworthy.lifecycle.engine.preflight.inputs.uneven import CELLS, TIMES, Uneven, cells_of, uneven
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Found
from trainworthy.lifecycle.plan import Plan

WINDOW_ROWS, MOST_WINDOWS = 64, 256
ALIKE, ALIKE_ERRORS = 0.1, 6.0


def shuffled(subject: Subject) -> Found:
    """Labels spread evenly over windows; neighbours in the file not together if they are alike; another order next."""
    plan = subject.plan
    if plan.batch_size >= plan.draws:
        return Found("pass", "every batch holds all rows")
    windows = _windows(plan)
    labels = _labels(subject)
    by_label = uneven(cells_of(labels)[windows]) if labels is not None else Uneven(1.0, 1.0)
    if by_label.alarms:
        return _sorted(f"labels differ between batches {by_label.times:.1f} times as much as in a fair order", by_label)
    by_place = uneven(windows * CELLS // plan.rows)
    alike = _neighbours_alike(subject) if by_place.alarms else ""
    if by_place.alarms and alike:
        return _sorted(f"a batch holds rows that lie side by side in the file, and {alike} are alike there", by_place)
    if _same_order(plan):
        fix = "shuffle with a seed made of the run's seed and the epoch"
        cause = "a shuffle that is seeded anew each epoch, or none"
        return Found("fail", "the second epoch has the order of the first", True, False, fix=fix, cause=cause)
    told = f"{len(windows)} windows of {windows.shape[1]} draws"
    if labels is None:
        return Found("pass", f"{told} are spread over the file; the sample's labels say nothing of single batches")
    return Found("pass", f"{told}: labels differ {by_label.times:.2f} times as much as in a fair order",
                 by_label.times, TIMES)  # fmt: skip


def _sorted(evidence: str, found: Uneven) -> Found:
    return Found("fail", evidence, round(found.times, 2), TIMES)


def _windows(plan: Plan) -> np.ndarray:
    """Row numbers of the first epoch's windows, (windows, rows of one); evenly spaced if there are too many."""
    joined = min(max(1, math.ceil(WINDOW_ROWS / plan.batch_size)), plan.steps_per_epoch)
    count = plan.steps_per_epoch // joined
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_WINDOWS)).round().astype(int))
    drawn = [[rows_of_step(plan, int(start) * joined + step) for step in range(joined)] for start in chosen]
    whole = [np.concatenate(one) for one in drawn]
    least = min(len(one) for one in whole)
    return np.stack([one[:least] for one in whole])


def _labels(subject: Subject) -> np.ndarray | None:
    """One label for each row of the plan: all rows' if the subject has them, else the sample's if it is all rows."""
    labels = subject.labels
    if labels is None and len(subject.training.targets) == subject.plan.rows:
        targets = subject.training.targets.detach().float().cpu()
        labels = targets.reshape(len(targets), -1).mean(dim=1).numpy()
    if labels is not None and labels.ndim > 1:
        # Rows of equal labels share a stratum.
        assert subject.kind is not None
        labels = subject.kind.strata(labels)
    return None if labels is None or len(np.unique(labels[: 10**6])) < 2 else labels


def _neighbours_alike(subject: Subject) -> str:
    """What rows side by side have in common: "labels", or inputs by name; "" if the file's order says nothing."""
    data = subject.training
    tensors = {"labels": data.targets, **data.inputs}
    for name, tensor in tensors.items():
        if name != "labels" and not tensor.is_floating_point():
            continue
        flat = tensor.detach().reshape(len(tensor), -1).float().nan_to_num(0.0, 0.0, 0.0).cpu().numpy()
        flat = flat[:, :: max(1, flat.shape[1] // CELLS)]
        flat = flat[:, flat.std(axis=0) > 0]
        if not flat.shape[1] or len(flat) < WINDOW_ROWS:
            continue
        unit = (flat - flat.mean(axis=0)) / flat.std(axis=0)
        together = float(np.max((unit[1:] * unit[:-1]).mean(axis=0)))
        if together > ALIKE and together > ALIKE_ERRORS / math.sqrt(len(flat)):
            return name
    return ""


def _same_order(plan: Plan) -> bool:
    """Whether the epochs that are planned repeat the first one's order."""
    if plan.horizon_steps < plan.steps_per_epoch + 1:
        return False
    steps = range(min(8, plan.steps_per_epoch, plan.horizon_steps - plan.steps_per_epoch))
    first = np.concatenate([rows_of_step(plan, step) for step in steps])
    second = np.concatenate([rows_of_step(plan, plan.steps_per_epoch + step) for step in steps])
    # A few rows in the same order may be chance.
    return len(first) >= 8 and np.array_equal(first, second)


CHECKS: tuple[Check[Any], ...] = (
    check_of("inputs.shuffled", shuffled),
    check_of("inputs.repeated_batch", repeated_batch),
)
