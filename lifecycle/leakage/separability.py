"""How far one column alone decides the label, measured by the cells that it puts the rows into.

AUC alone misses a copy of the label with 5 % of its values flipped: that is 0.95 at any base rate, and a legitimate
strong feature reaches it too. What tells them apart is one cut: a copy decides almost every row by a single set of
cells, while the same AUC made of many weak steps has no such set. The best set's hit rate less its false alarms
(Youden's J) is 0.90 for the flipped copy at any base rate, and 0.76 for a normal score of AUC 0.95. Both are rates
within a class, so neither depends on how rare the label is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trainworthy.lifecycle.leakage.binning import Cells, LabelledRows
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Copy
from trainworthy.lifecycle.tasks.probabilities import auc_error

MINIMUM_TRAINING, MINIMUM_HELD = 20, 10


@dataclass(frozen=True)
class Power:
    """Youden's J over all rows (each training row judged by the others) with its standard error, and on held rows.

    `auc` is that of the held rows, ranked by the shares of the training rows, with its standard error `auc_error`;
    `training_auc` that of the training rows themselves.
    """

    youden: float
    standard_error: float
    held_youden: float
    auc: float
    auc_error: float
    training_auc: float
    copy: Copy = COPY_OF_CLASSES
    event: str = ""

    @property
    def what(self) -> str:
        """What is decided: one event by its name where that is enough, else the label."""
        return self.event if self.copy.of_one_event else "the label"

    @property
    def decides(self) -> bool:
        """True if the column alone is as good as the label; the cut must hold on the fewer held rows, too."""
        by_cut = self.youden - self.standard_error >= self.copy.youden and self.held_youden >= self.copy.held_youden
        return by_cut or min(self.auc, self.training_auc) >= self.copy.auc


def power_over_events(cells: Cells, rows: LabelledRows) -> Power:
    """The least power over the events that there are rows enough for: a copy of the label decides them all.

    The greatest one where each event is a label of its own (Copy.of_one_event).

    One flower's petals tell its species from all others, and an hour's load is nearly the one before: neither is a
    copy, which would decide each class, and the tails as well as the middle.
    """
    enough = [event for event in rows.events if not shortage(_both(event.training), _both(event.held[rows.scored]))]
    # Whether the main one has rows enough is asked before any column is measured.
    powers = [
        replace(power(cells, event.training, event.held, rows.scored), copy=rows.copy, event=event.name)
        for event in enough or rows.events[:1]
    ]
    chosen = max if rows.copy.of_one_event else min
    return chosen(powers, key=lambda event_power: (event_power.decides, event_power.auc))


def _both(labels: np.ndarray) -> np.ndarray:
    """Rows of 0 and of 1, (2,)."""
    return np.bincount(labels, minlength=2)


def power(cells: Cells, labels: np.ndarray, held_labels: np.ndarray, scored: np.ndarray) -> Power:
    """The column's power, fitted on training rows and measured on the `scored` held rows as well."""
    positives, negatives = _counts(cells.training, labels, cells.count)
    held_positives, held_negatives = _counts(cells.held[scored], held_labels[scored], cells.count)
    all_positives, rows, each = positives.sum(), len(labels), positives + negatives
    # Each training row is judged by the other rows, so that a cell of one row says nothing about it.
    other_rows = np.maximum(each - 1, 1)
    hit = (positives - 1) / other_rows > (all_positives - 1) / (rows - 1)
    alarm = positives / other_rows > all_positives / (rows - 1)
    share = np.divide(positives, each, out=np.full(cells.count, all_positives / rows), where=each > 0)
    held_hit = share > all_positives / rows
    hits, alarms = (positives * hit * (each > 1)).sum(), (negatives * alarm * (each > 1)).sum()
    held_hits, false = (held_positives * held_hit).sum(), (held_negatives * held_hit).sum()
    youden, error = _youden(
        hits + held_hits, all_positives + held_positives.sum(), alarms + false, negatives.sum() + held_negatives.sum()
    )
    held_youden, _ = _youden(held_hits, held_positives.sum(), false, held_negatives.sum())
    # A cell of few rows leans on the base rate.
    smoothed = (positives + all_positives / rows) / (each + 1)
    auc = _auc(smoothed, held_positives, held_negatives)
    held_error = auc_error(auc, int(held_positives.sum()), int(held_negatives.sum()))
    return Power(youden, error, held_youden, auc, held_error, _auc(smoothed, positives, negatives))


def shortage(training: np.ndarray, held: np.ndarray) -> str:
    """Why rows of these labels, shape (2,), are too few to measure by, in words; empty if they are not."""
    for name, counts, least in (("training", training, MINIMUM_TRAINING), ("held-out", held, MINIMUM_HELD)):
        fewer = int(counts.min())
        if fewer < least:
            return f"the {name} rows hold {fewer} of one label; at least {least} are needed"
    return ""


def _counts(cells: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    both = np.bincount(cells * 2 + labels, minlength=count * 2).reshape(count, 2)
    return both[:, 1], both[:, 0]


def _youden(hits: float, positives: float, alarms: float, negatives: float) -> tuple[float, float]:
    hit, alarm = hits / max(positives, 1), alarms / max(negatives, 1)
    # One row more of each kind, so that no error is zero.
    spread = (hits + 1) * (positives - hits + 1) / (positives + 2) ** 3
    spread += (alarms + 1) * (negatives - alarms + 1) / (negatives + 2) ** 3
    return float(hit - alarm), math.sqrt(spread)


def _auc(scores: np.ndarray, positives: np.ndarray, negatives: np.ndarray) -> float:
    """Area under the ROC curve of cells ranked by their score, ties count half."""
    _, tied = np.unique(scores, return_inverse=True)
    up, down = np.bincount(tied, weights=positives), np.bincount(tied, weights=negatives)
    wins = up * (np.cumsum(down) - down / 2)
    return float(wins.sum() / max(up.sum() * down.sum(), 1))
