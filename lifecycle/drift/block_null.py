"""Thresholds from history: what a block of the window's length has shown against the rest, before drift was asked.

A statistic of counts is judged twice: the window against all history, and against the block just before it. A season
moves far from the year's mean, yet not in one step; a fault appears between two neighbouring blocks, and there it is
greater than any step that history has taken. Both have to exceed their threshold. p-values decide nothing: with many
rows they call every month drift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    # Counts of blocks (B, K) and of what each is compared with (B, K) or (K,) → the statistic (B,).
    Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Times the window's length that history must hold: of less, its greatest block says little about the next.
MINIMUM_BLOCKS = 2.5


@dataclass(frozen=True)
class Judged:
    """A statistic of the window's most unusual block of `length` units from `start`, and what it may be.

    `observed` and `threshold` are those of the comparison that exceeds its threshold less; `blocks` is history's length
    over the block's.
    """

    observed: float
    threshold: float
    against: str
    start: int
    length: int
    blocks: float
    floor: float

    @property
    def excess(self) -> float:
        """Observed over threshold: above 1 is a finding."""
        return self.observed / self.threshold

    @property
    def source(self) -> str:
        """Where the threshold comes from, in words."""
        return source(self.threshold, self.floor, self.blocks)


def source(threshold: float, floor: float, blocks: float) -> str:
    """Where a threshold comes from: the floor, or history's greatest block."""
    if threshold <= floor:
        return "the smallest size that is worth a word; history showed less"
    return f"{margin(blocks):.2g} times history's greatest block of this length ({blocks:.1f} blocks)"


def margin(blocks: float) -> float:
    """How far beyond history's greatest block the next may lie: the fewer blocks were seen, the farther.

    On flights the greatest healthy month lies at 1.9 times the null's greatest with 4 blocks, at 1.7 with 5 to 11.
    """
    return 1.5 + 6 / blocks


def running_total(counts: np.ndarray) -> np.ndarray:
    """Counts of all units before each, shape (U + 1, K), of counts (U, K): a block is a difference of two rows."""
    total = np.zeros((counts.shape[0] + 1, counts.shape[1]))
    np.cumsum(counts, axis=0, out=total[1:])
    return total


def judge(statistic: Statistic, total: np.ndarray, history: int, length: int, floor: float) -> Judged:
    """The window's blocks of `length` units, judged by the blocks of the `history` units before it.

    `total` is the running total; `floor` is the effect size below which nothing is a finding.
    """
    window = total.shape[0] - 1 - history
    far_null, near_null = _null(statistic, total, history, length, window)
    starts = np.arange(history, history + window - length + 1)
    blocks = total[starts + length] - total[starts]
    many = margin(history / length)
    far, near = max(floor, many * far_null), max(floor, many * near_null)
    against_all = statistic(blocks, total[history])
    against_last = statistic(blocks, total[history] - total[history - length])
    excess = np.minimum(against_all / far, against_last / near)
    place = int(excess.argmax())
    rest = {"start": int(starts[place]), "length": length, "blocks": history / length, "floor": floor}
    if against_all[place] / far <= against_last[place] / near:
        return Judged(float(against_all[place]), far, "all rows before", **rest)
    return Judged(float(against_last[place]), near, "the block just before", **rest)


def _null(statistic: Statistic, total: np.ndarray, history: int, length: int, window: int) -> tuple[float, float]:
    """The greatest value that history's blocks show: against all other or all earlier units, and block to block."""
    # A quarter of a block further is nearly the same block; nothing is gained by every single day.
    starts = np.arange(0, history - length + 1, max(1, length // 7))
    blocks = total[starts + length] - total[starts]
    later = starts >= length
    far = max(statistic(blocks, total[history] - blocks).max(), statistic(blocks[later], total[starts[later]]).max())
    # A window of several blocks holds some that do not follow history at once: so do the pairs.
    gaps = sorted({0, (window - length) // 2, window - length})
    near = 0.0
    for gap in gaps:
        first = starts[starts + 2 * length + gap <= history]
        if len(first):
            second = first + length + gap
            pair = total[second + length] - total[second], total[first + length] - total[first]
            near = max(near, float(statistic(*pair).max()))
    return float(far), near
