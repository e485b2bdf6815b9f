"""Values of a code list that ended before the newest window: told with their last day, and no finding.

A change is a finding once, when it begins. Where months arrive at once it began before the window, and nobody was told;
and as long as the rows are trained on, a model learns of carriers that do not fly any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.drift.categories import CODE_LIST
from trainworthy.lifecycle.drift.columns import Categories
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS

if TYPE_CHECKING:
    import numpy as np

# The absence is this many times longer than every pause before it: a value of one season pauses each year.
_BEYOND_PAUSES = 3


def ended(values: Categories) -> dict[str, str]:
    """Values and their last day, the most frequent first; {} where units are no days or values are many."""
    import numpy as np

    axis, kept = values.axis, values.kept
    if not axis.in_time or len(kept) > CODE_LIST:
        return {}
    counts = values.counts[:, : len(kept)]
    last = {values.names[code]: _last_unit(np.flatnonzero(rows), rows.sum(), axis.history, axis.length, axis.count)
            for code, rows in zip(kept, counts.T, strict=True)}  # fmt: skip
    return {name: axis.names[unit] for name, unit in last.items() if unit is not None}


def _last_unit(held: np.ndarray, rows: int, history: int, window: int, count: int) -> int | None:
    """The last unit of a value that most of history held, if it has ended; `held` are the units with rows of it."""
    import numpy as np

    if not len(held) or held[0] > history / 4 or held[-1] < history / 2:
        return None
    absent, pause = count - 1 - held[-1], int(np.diff(held).max(initial=1))
    missed = rows / (held[-1] + 1) * absent
    return int(held[-1]) if absent >= max(window, _BEYOND_PAUSES * pause) and missed >= FEWEST_ROWS else None
