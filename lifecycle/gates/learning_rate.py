"""What the rates that preflight tried say of the declared one."""

from __future__ import annotations

import math
from collections.abc import Sequence


def suggested_range(curve: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Rates to try, from a range's (rate, loss): a thirtieth to a third of where the loss was least."""
    best = min((point for point in curve if math.isfinite(point[1])), key=lambda point: point[1])[0]
    return best / 30, best / 3
