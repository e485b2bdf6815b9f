"""L2: a column that is filled in, or left empty, because of the outcome.

Its values may say nothing; that there is one says it all. The mask need not cover the outcome: a note that is written
for a third of the cancelled orders, and for no other, decides that third.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import Cells, LabelledRows
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "null_mask"
# Honest features do not come near: a normal score of AUC 0.95 has a set of 0.3 of one label at odds of 137, but
# whether a value is there at all is a far coarser thing than a score.
TIMES, SHARE, MINIMUM_ROWS = 100.0, 0.3, 20


def null_mask(rows: LabelledRows, cells: Mapping[str, Cells]) -> list[Leak]:
    """One finding for each column whose nulls belong to one label only."""
    masked = {name: column_cells for name, column_cells in cells.items() if (column_cells.training == 0).any()}
    if not masked:
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence="no feature has a null")]
    leaks = [finding for name, column_cells in masked.items() if (finding := _judged(rows, name, column_cells))]
    evidence = f"none of {len(masked)} features with nulls has them for one label only"
    return leaks or [Leak(taxon="L2", family=FAMILY, status="pass", evidence=evidence)]


def _judged(rows: LabelledRows, name: str, cells: Cells) -> Leak | None:
    """A finding if the mask, or its opposite, is found with one label only: in training and in held-out rows.

    Of several events it is a warning: one class may be the only one that a question is asked of.
    """
    combinations = itertools.product((1, 0), (("null", True), ("filled in", False)), rows.events)
    for label, (kind, nulls), event in combinations:
        training = _odds((cells.training == 0) == nulls, event.training == label)
        held = _odds(((cells.held == 0) == nulls)[rows.scored], (event.held == label)[rows.scored])
        # The held-out rows may be too few to show odds of 100; they must not contradict.
        if training is not None and training[0] >= TIMES and held is not None and held[0] >= TIMES / 5:
            several = len(rows.events) > 1
            which = f"{'' if label else 'not '}{event.name}" if several else f"label {label}"
            evidence = (
                f"it is {kind} in {training[1]:.1%} of the training rows of {which} and {training[0]:.0f} "
                f"times less often in the others (suspicious from {TIMES:.0f} times)"
            )
            return Leak(
                taxon="L2", family=FAMILY, status="warning" if several else "fail", columns=(name,),
                observed=training[0], threshold=TIMES, evidence=evidence, fix=fix_of(FAMILY),
            )  # fmt: skip
    return None


def _odds(mask, of_label) -> tuple[float, float] | None:
    """How many times more often the mask holds for the label than for the other, at least, and its share; or None."""
    inside, outside = int((mask & of_label).sum()), int((mask & ~of_label).sum())
    share = inside / max(int(of_label.sum()), 1)
    if inside < MINIMUM_ROWS / 2 or share < SHARE:
        return None
    return share * (int((~of_label).sum()) + 1) / (outside + 1), share
