"""Labels that belong to a row nearby: a join that is off by one, a lag that was taken on one side only.

Such labels look like shuffled ones, and one look at the neighbours tells them apart. Only for rows in the order of
their source: of a sample of many more rows, neighbours are seldom in it.
"""

from __future__ import annotations

import numpy as np
import torch

from trainworthy.lifecycle.engine.preflight.overfit.rise import Rise, line_rise
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Found

MOST_ROWS, BATCH_ROWS, SHIFTS = 4096, 64, (1, -1, 2, -2)
# Standard errors of a line with the neighbours' labels; as many times what it finds with the rows' own.
PLAIN, TIMES = 6.0, 4.0
# Standard errors that a line over the held-out rows finds with their own labels, so that theirs are right.
SHOWN, NOT_SEEN = 3.0, 1.5
# Standard errors between what it finds in the two parts.
APART = 4.0


def labels_of_neighbours(subject: Subject, evidence: str, real: Rise, held_out: Rise) -> Found | None:
    """What is wrong if the training rows' inputs tell the labels of the rows beside them, or none, and not their own.

    Where the held-out rows' inputs do not tell their own either, it may be a forecast of what cannot be told.
    """
    size = min(BATCH_ROWS, len(subject.training.targets))
    count = min(len(subject.training.targets), MOST_ROWS) // size * size
    rows, groups = list(torch.arange(count, device=subject.device).split(size)), np.arange(count) // (size // 2 or 1)

    def found(shift: int) -> Rise:
        moved = TrainData(subject.training.inputs, subject.training.targets.roll(shift, 0))
        return line_rise(subject, moved, rows, groups)

    own, (best, shift) = found(0), max(((found(shift), shift) for shift in SHIFTS), key=lambda one: one[0].errors)
    told = f"{evidence}; a line over {count} training rows finds {own} with their own labels"
    if best.errors >= PLAIN and best.value >= TIMES * abs(own.value):
        where = f"{abs(shift)} row{'s' * (abs(shift) > 1)} {'before' if shift > 0 else 'after'}"
        cause = "the labels were moved against the rows: a join or a shift that is off by so many rows"
        fix = "join labels to rows by a key, and compare a few rows with their labels at the source"
        status = "fail" if held_out.errors >= SHOWN else "insufficient"
        return Found(status, f"{told}, and {best} with those of {where}", real.value, None, cause, fix)
    if held_out.errors >= SHOWN and own.errors < NOT_SEEN and held_out.above(own) >= APART:
        return Found("fail", f"{told}, and over the held-out rows {held_out}", real.value, None)
    return None
