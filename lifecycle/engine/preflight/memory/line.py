"""The straight line by which bytes on few rows are told at many."""

from __future__ import annotations

from collections.abc import Sequence


def line(points: Sequence[tuple[int, int]], rows: int) -> float:
    """The straight line through two points at `rows`; never below the last one. One point: it grows in proportion."""
    (first, low), (last, high) = points[0], points[-1]
    if rows <= last:
        return high
    if first == last:
        return high * rows / last
    return max(high, high + (high - low) / (last - first) * (rows - last))
