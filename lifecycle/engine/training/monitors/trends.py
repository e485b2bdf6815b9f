"""Gradients that shrink or grow from update to update, parameter by parameter.

By the slope of the logarithm of each norm, not by its size: sizes differ by orders of magnitude between healthy layers.
A gradient that shrinks with the loss has done its work, and one that grows while the loss falls has left a plateau:
neither is told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import Signals

# Of the updates, every so many are kept, and so many of these are looked at together.
KEEP_EVERY, KEPT = 4, 40
# A trend: by this factor over what is kept, its quarters in order.
VANISHES, EXPLODES = 100.0, 30.0
# The loss of the last quarter against the first: at least that to have fallen, to have risen.
FELL, ROSE = 0.9, 1.2
# Of the usual norm of a parameter: below, a gradient moves nothing.
NOTHING = 1e-4
NAMED = 5
TINY = 1e-38


class Trends(Base):
    """`vanishing_gradients`, a warning, and `exploding_gradients`, critical. `names` are the parameters'."""

    name = "trends"
    kept: ClassVar = ("_norms", "_losses", "_first", "_first_loss")

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names
        self._norms: list[list[float | None]] = []
        self._losses: list[float] = []
        self._first: list[float] | None = None
        self._first_loss = math.nan

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        sampled = updates[KEEP_EVERY - 1 :: KEEP_EVERY]
        self._norms += [signals.grad_norms for signals in sampled]
        self._losses += [signals.loss for signals in sampled]
        if len(self._norms) < KEPT:
            return None
        finding = self._look(updates[-1].step)
        # Half of it is looked at again, so that a trend which begins in the middle is seen whole.
        del self._norms[: KEPT // 2], self._losses[: KEPT // 2]
        return finding

    def _look(self, step: int) -> Finding | None:
        norms = np.array([[math.nan if norm is None else norm for norm in row] for row in self._norms])
        logs = np.log(np.maximum(norms, TINY))
        quarters = np.median(logs.reshape(4, KEPT // 4, -1), axis=1)
        parts = [statistics.median(self._losses[k * KEPT // 4 : (k + 1) * KEPT // 4]) for k in range(4)]
        if self._first is None:
            self._first, self._first_loss = quarters[0].tolist(), parts[0]
        return self._exploding(step, quarters, parts) or self._vanishing(step, quarters, parts)

    def _exploding(self, step: int, quarters: np.ndarray, losses: list[float]) -> Finding | None:
        """Grown in each quarter, beyond where it began, while the loss rose."""
        grown = quarters[-1] - np.maximum(quarters[0], np.array(self._first))
        rises = (np.diff(quarters, axis=0) > 0).all(axis=0) & (grown > math.log(EXPLODES))
        if not rises.any() or not _larger(losses[-1], losses[0], ROSE):
            return None
        return self._finding("exploding_gradients", "grew", step, rises, grown, losses)

    def _vanishing(self, step: int, quarters: np.ndarray, losses: list[float]) -> Finding | None:
        """Shrunk in each quarter, and to nothing, while the loss did not fall.

        Where all gradients shrink together and the loss lies below where it began, the training has converged.
        """
        fallen = quarters[0] - quarters[-1]
        falls = (np.diff(quarters, axis=0) <= 0).all(axis=0) & (fallen > math.log(VANISHES))
        nothing = quarters[-1] < np.nanmax(np.array(self._first)) + math.log(NOTHING)
        if not (falls & nothing).any() or _larger(losses[0], losses[-1], 1 / FELL):
            return None
        if (fallen > math.log(VANISHES) / 2).sum() > 0.9 * len(fallen) and _larger(
            self._first_loss, losses[-1], 1 / FELL
        ):
            return None
        return self._finding("vanishing_gradients", "shrank", step, falls & nothing, -fallen, losses)

    def _finding(
        self, monitor: str, way: str, step: int, which: np.ndarray, change: np.ndarray, losses: list[float]
    ) -> Finding | None:
        names = [name for name, chosen in zip(self._names, which.tolist(), strict=True) if chosen]
        updates, factor = KEEP_EVERY * KEPT, math.exp(min(700.0, float(abs(change[which]).max())))
        return self.tell(
            step, max(0, step - updates),
            symptom_of(monitor),
            f"over {updates} updates to step {step}, gradients of {len(names)} of {len(self._names)} parameters {way}, "
            f"by up to {factor:.3g} times, while the loss went from {losses[0]:.4g} to {losses[-1]:.4g}",
            tuple(names[:NAMED]), what=monitor,
        )  # fmt: skip


def _larger(value: float, reference: float, factor: float) -> bool:
    """True if a value is that many times the reference, or above it by as much of its size."""
    return value - reference > (factor - 1) * abs(reference)
