"""Is every batch a fair draw of the rows? The plan alone is asked: nothing is trained.

Batches are joined to windows of at least WINDOW_ROWS draws, since a batch of one row holds one label. A window's
labels, and the places of its rows in the file, are counted and held against those of all windows together: whatever
is drawn more often on purpose is more often in every window.

Do the batches of an epoch hold other rows each time, and do the first epochs meet all rows?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import gamma

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.sampling import evenly_spaced

# Classes of a value that has more kinds, and parts of a file.
CELLS = 16
# Odds of a fair order, by a gamma distribution with the mean and variance of 40 shuffles; its tail is too thin for rare
# labels, which gave 3e-8 in 17,000 fair orders, hence the distance. And how many times its mean the statistic must be:
# sorted rows have as many as a window has rows.
FALSE_ALARM, TIMES, SHUFFLES = 1e-12, 1.5, 40
# A label that has fewer rows in the mean window counts as the most frequent one.
FEWEST_EACH = 1.0


@dataclass(frozen=True)
class Uneven:
    """How unequal windows are: their chi-square over that of shuffled draws, and the odds of it."""

    times: float
    odds: float

    @property
    def alarms(self) -> bool:
        return self.odds < FALSE_ALARM and self.times > TIMES


def cells_of(values: np.ndarray) -> np.ndarray:
    """Values as class numbers: themselves if they are few, else CELLS quantiles."""
    kinds, numbers = np.unique(values, return_inverse=True)
    if len(kinds) <= CELLS:
        return numbers
    edges = np.quantile(values, np.linspace(0, 1, CELLS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right")


def uneven(cells: np.ndarray) -> Uneven:
    """Chi-square of the windows' counts against those of all, compared with shuffles of the same draws."""
    if len(cells) < 2:
        return Uneven(1.0, 1.0)
    totals = np.bincount(cells.ravel())
    # A handful of rows can't show an order: three of five in one window happen.
    cells = np.where(totals[cells] >= FEWEST_EACH * len(cells), cells, int(totals.argmax()))
    generator = np.random.default_rng(0)
    observed, flat = _chi_square(cells), cells.ravel().copy()
    null = []
    for _ in range(SHUFFLES):
        generator.shuffle(flat)
        null.append(_chi_square(flat.reshape(cells.shape)))
    mean, variance = float(np.mean(null)), float(np.var(null))
    if mean <= 0 or variance <= 0:
        return Uneven(1.0, 1.0)
    return Uneven(observed / mean, float(gamma.sf(observed, mean**2 / variance, scale=variance / mean)))


def _chi_square(cells: np.ndarray) -> float:
    count = int(cells.max()) + 1
    offset = cells + np.arange(len(cells))[:, None] * count
    observed = np.bincount(offset.ravel(), minlength=len(cells) * count).reshape(len(cells), count)
    expected = np.maximum(observed.mean(axis=0), 1e-12)
    return float((np.square(observed - expected) / expected).sum())


# Batches that are drawn, draws that a part of the file needs to be met for sure, and epochs that are looked at.
MOST_BATCHES, EXPECTED_DRAWS, REPEATED_EPOCHS = 20_000, 64, 3
NEVER = 0.01


def repeated_batch(subject: Subject) -> Outcome:
    """Different batches within an epoch, and all rows met over the first epochs."""
    plan = subject.plan
    epochs = max(1, min(REPEATED_EPOCHS, plan.horizon_steps // plan.steps_per_epoch))
    if plan.steps_per_epoch * epochs > MOST_BATCHES:
        epochs = 1
    per_epoch = min(plan.steps_per_epoch, MOST_BATCHES)
    drawn = [[rows_of_step(plan, e * plan.steps_per_epoch + step) for step in range(per_epoch)] for e in range(epochs)]
    again = _met_again(plan, drawn[0])
    if again:
        return Outcome("fail", f"{again} of the first epoch's {per_epoch} batches hold the rows of another", again, 0)
    sets = [np.flatnonzero(np.bincount(np.concatenate(batches), minlength=plan.rows)) for batches in drawn]
    met = np.flatnonzero(np.bincount(np.concatenate(sets), minlength=plan.rows))
    coverage = f"{len(met):,} of {plan.rows:,} rows in {'the first epoch' if epochs == 1 else f'{epochs} epochs'}"
    if per_epoch < plan.steps_per_epoch:
        return Outcome("pass", f"{per_epoch:,} batches, none twice; {coverage}")
    fault = _never(plan, sets, met)
    if fault:
        fix = "let the order run over all rows, and leave another remainder out each epoch"
        return Outcome(
            "fail", f"{coverage}; {fault}", len(met), plan.rows, fix=fix, cause="an order over a part of the rows"
        )
    return Outcome("pass", f"no batch twice; {coverage}", 0, 0)


def _met_again(plan: Plan, batches: list[np.ndarray]) -> int:
    """Batches with the rows of an earlier one; small ones are joined until that can't be chance."""
    # Decimal digits of the number of different windows: 12 is beyond chance for all pairs of MOST_BATCHES.
    joined = next((j for j in range(1, len(batches) // 2 + 1) if _digits(plan.rows, j * plan.batch_size) >= 12), 0)
    if not joined:
        return 0
    whole = [np.sort(np.concatenate(batches[i : i + joined])) for i in range(0, len(batches) - joined + 1, joined)]
    return len(whole) - len({window.tobytes() for window in whole})


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
    if len(sets) > 1 and all(np.array_equal(sets[0], epoch_rows) for epoch_rows in sets[1:]):
        return f"the same {missed:,} are left out each time"
    places = np.bincount(met * CELLS // plan.rows, minlength=CELLS)
    if draws * len(sets) >= CELLS * EXPECTED_DRAWS and not places.all():
        return f"none from {int((places == 0).sum())} of {CELLS} parts of the file"
    return ""


def rows_of_step(plan: Plan, step: int) -> np.ndarray:
    return plan.batch(step).cpu().numpy()


WINDOW_ROWS, MOST_WINDOWS = 64, 256
ALIKE, ALIKE_ERRORS = 0.1, 6.0


def shuffled(subject: Subject) -> Outcome:
    """Labels spread evenly over windows; neighbours in the file not together if they are alike; another order next."""
    plan = subject.plan
    if plan.batch_size >= plan.draws:
        return Outcome("pass", "every batch holds all rows")
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
        return Outcome("fail", "the second epoch has the order of the first", True, False, fix=fix, cause=cause)
    evidence = f"{len(windows)} windows of {windows.shape[1]} draws"
    if labels is None:
        return Outcome(
            "pass", f"{evidence} are spread over the file; the sample's labels say nothing of single batches"
        )
    return Outcome("pass", f"{evidence}: labels differ {by_label.times:.2f} times as much as in a fair order",
                   by_label.times, TIMES)  # fmt: skip


def _sorted(evidence: str, imbalance: Uneven) -> Outcome:
    return Outcome("fail", evidence, round(imbalance.times, 2), TIMES)


def _windows(plan: Plan) -> np.ndarray:
    """Row numbers of the first epoch's windows, (windows, rows of one); evenly spaced if there are too many."""
    joined = min(max(1, math.ceil(WINDOW_ROWS / plan.batch_size)), plan.steps_per_epoch)
    count = plan.steps_per_epoch // joined
    chosen = evenly_spaced(count, MOST_WINDOWS)
    drawn = [[rows_of_step(plan, int(start) * joined + step) for step in range(joined)] for start in chosen]
    whole = [np.concatenate(batches) for batches in drawn]
    least = min(len(window) for window in whole)
    return np.stack([window[:least] for window in whole])


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
