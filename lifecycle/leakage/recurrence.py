"""How often rows come again among training rows of other times, and how often they may by nature.

The training's time is cut into twentieths. A training row recurs if an equal one lies in another part, beyond the
neighbours: an hour looks like the hour before it. Nature is what recurs in the part where most rows do, for a held-out
split may lie in such a season, or in such a state of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PARTS, NEIGHBOUR = 20, 1
# A longer history holds more customers to come again. Of 400 healthy tables with seasons, states of a machine and
# customers who return 1 raised an alarm, with a growth of 1.0 19.
GROWTH = 1.5
# Values are fine if hardly two rows are equal in a few columns.
FINE_SHARE, MINIMUM_SINGLE_ROWS = 0.99, 100


@dataclass(frozen=True)
class Views:
    """Rows as hashes, one for each way of looking at them, shape (views, rows), their labels, and `part` (parts_of).

    `coarse` is the hash of a few columns only, shape (rows,).
    """

    hashes: np.ndarray
    labels: np.ndarray
    part: np.ndarray
    coarse: np.ndarray


@dataclass(frozen=True)
class Known:
    """The different hashes of the training rows: the first and last part of each, and its share of positives.

    `row` is the place of each training row's hash among them.
    """

    hashes: np.ndarray
    row: np.ndarray
    first: np.ndarray
    last: np.ndarray
    positives: np.ndarray


@dataclass(frozen=True)
class Repeats:
    """How many of some rows come among older training rows, and how many of those under another label."""

    rows: int
    matched: int
    disagreeing: float

    @property
    def share(self) -> float:
        return self.matched / max(self.rows, 1)


def parts_of(when: np.ndarray | None, rows: int) -> np.ndarray:
    """The part of the time, 0 … PARTS - 1, in which each row lies; without a time every PARTS-th row is in one."""
    import numpy as np

    if when is None:
        return np.arange(rows) % PARTS
    if len(np.unique(when)) < PARTS:
        when = np.arange(rows)
    return np.searchsorted(np.quantile(when, np.arange(1, PARTS) / PARTS, method="higher"), when, side="right")


def known_rows(hashes: np.ndarray, training: Views) -> Known:
    """The training rows, looked at in one way."""
    import numpy as np

    found, row, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    first, last = np.full(len(found), PARTS), np.full(len(found), -1)
    np.minimum.at(first, row, training.part)
    np.maximum.at(last, row, training.part)
    return Known(found, row, first, last, np.bincount(row, weights=training.labels, minlength=len(found)) / counts)


def by_nature(part: np.ndarray, known: Sequence[Known]) -> float:
    """The share of rows that may recur by nature: that of training rows in the part where most recur, and growth."""
    import numpy as np

    again = np.zeros(len(part), dtype=bool)
    for one in known:
        again |= (one.first[one.row] < part - NEIGHBOUR) | (one.last[one.row] > part + NEIGHBOUR)
    if not again.any():
        return 0.0
    rows, mean = np.bincount(part), again.mean()
    shares = (np.bincount(part, weights=again) / np.maximum(rows, 1))[rows > 0]
    # Parts of few rows differ by chance; only what they differ by beyond that is a season.
    by_chance = mean * (1 - mean) * (1 / rows[rows > 0]).mean()
    season = max(0.0, 1 - by_chance / max(shares.var(), by_chance, 1e-12)) ** 0.5
    return float(min(1.0, GROWTH * (mean + season * (shares.max() - mean + shares.std()))))


def repeats_of(rows: Views, known: Sequence[Known]) -> Repeats:
    """Rows that are found among the older ones, in any view, and the share of those of the other label."""
    import numpy as np

    count = rows.hashes.shape[1]
    matched, rate = np.zeros(count, dtype=bool), np.zeros(count)
    for mine, theirs in zip(rows.hashes, known, strict=True):
        if not len(theirs.hashes):
            continue
        place = np.minimum(np.searchsorted(theirs.hashes, mine), len(theirs.hashes) - 1)
        older = theirs.first[place] < PARTS - 1 - NEIGHBOUR
        new = (theirs.hashes[place] == mine) & older & ~matched
        rate[new] = theirs.positives[place[new]]
        matched |= new
    disagreeing = np.abs(rate - rows.labels)[matched].sum()
    return Repeats(count, int(matched.sum()), float(disagreeing))


def are_fine(both: tuple[Views, Views]) -> bool:
    """True if, copies set aside, hardly two rows are equal in a few columns: then no copy is an accident."""
    import numpy as np

    whole = np.concatenate([views.hashes[0] for views in both])
    coarse = np.concatenate([views.coarse for views in both])
    _, inverse, counts = np.unique(whole, return_inverse=True, return_counts=True)
    once = coarse[counts[inverse] == 1]
    return len(once) >= MINIMUM_SINGLE_ROWS and len(np.unique(once)) >= FINE_SHARE * len(once)


def joined(views: Sequence[Views]) -> Views:
    """The rows of several splits as those of one."""
    import numpy as np

    hashes = np.concatenate([view.hashes for view in views], axis=1)
    labels, part, coarse = (
        np.concatenate(some) for some in zip(*((view.labels, view.part, view.coarse) for view in views), strict=True)
    )
    return Views(hashes, labels, part, coarse)
