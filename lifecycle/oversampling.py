"""Rows of a rare class that an epoch draws more often than once.

Each row is drawn once, and rows of the class again: all of them as often as that goes, and the rest chosen anew each
epoch, by (seed, epoch) alone. A drawn row counts once in the curve, where the pass meets it first: the second time an
update has seen it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.spec.training import Oversampling

if TYPE_CHECKING:
    import numpy as np
    import torch


class Oversampled:
    """`repeats` draws of an epoch on top of one of each row, all of the rows `rare`, numbers of shape (R,)."""

    def __init__(self, rare: np.ndarray, repeats: int) -> None:
        self.rare, self.repeats = rare, repeats

    @classmethod
    def unknown(cls, repeats: int) -> Oversampled:
        """So many draws again of rows that are not known."""
        import numpy as np

        return cls(np.empty(0, dtype=np.int64), repeats)

    @property
    def times(self) -> float:
        """How often such a row is drawn in an epoch, on average."""
        return 1 + self.repeats / len(self.rare)

    def drawn(self, rows: int, seed: int) -> torch.Tensor:
        """Row number of each draw of an epoch, before they are put in order, (rows + repeats,)."""
        import torch

        whole, rest = divmod(self.repeats, len(self.rare))
        chosen = torch.randperm(len(self.rare), generator=torch.Generator().manual_seed(seed))[:rest]
        rare = torch.from_numpy(self.rare)
        return torch.cat([torch.arange(rows), rare.repeat(whole), rare[chosen]])

    def draws_of(self, rows: int) -> np.ndarray:
        """How often each row is drawn, on average, (rows,)."""
        import numpy as np

        times = np.ones(rows)
        times[self.rare] = self.times
        return times


def repeated_draws(rows: int, positives: int, declared: Oversampling | None) -> int:
    """Draws of an epoch beyond one of each of so many rows."""
    if declared is None or not 0 < positives < rows:
        return 0
    return abs(rows - 2 * positives) if isinstance(declared, str) else round((declared.positive - 1) * positives)


def oversample(labels: np.ndarray, declared: Oversampling | None) -> Oversampled | None:
    """What is drawn again of rows with these labels, (N,) of 0 and 1; None if nothing is."""
    import numpy as np

    positives = int((labels == 1).sum())
    repeats = repeated_draws(len(labels), positives, declared)
    if not repeats:
        return None
    rare = 0 if isinstance(declared, str) and 2 * positives > len(labels) else 1
    return Oversampled(np.flatnonzero(labels == rare), repeats)
