"""Gradients that are not those of this update's rows: left from earlier ones, or added to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar

from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import WINDOW, Sample, Signals

# Updates in a row with equal gradients. Norms of float32 of other rows are equal to the last bit in one of about 1e7.
EQUAL = 3


class StaleGradients(Base):
    """Gradient norms that are equal to the last bit, of all parameters or of some, though the rows are others."""

    name = "stale_gradients"
    kept: ClassVar = ("_equal", "_suspects", "_since", "_newest", "_before")

    def __init__(self) -> None:
        super().__init__()
        self._before: Signals | None = None
        self._newest: Signals | None = None
        self._equal = 0
        self._suspects: dict[str, float] = {}
        self._since = 0

    def after_backward(self, signals: Signals) -> Finding | None:
        """A finding after EQUAL updates with the gradients of the one before."""
        before, self._before, self._newest = self._newest, self._newest, signals
        if before is None or signals.grad_norm != before.grad_norm or not 0 < signals.grad_norm < float("inf"):
            self._equal = 0
            return None
        # At a rate of 0 equal rows have equal gradients: a whole batch before its first update.
        same = signals.grad_norms == before.grad_norms and not (
            signals.loss == before.loss and signals.squared == before.squared
        )
        self._equal = self._equal + 1 if same else 0
        if self._equal < EQUAL:
            return None
        return self.tell(
            signals.step, signals.step - EQUAL + 1, symptom_of("stale_gradients"),
            f"{EQUAL + 1} updates in a row with a gradient norm of {signals.grad_norm!r}, equal to the last bit for "
            f"every parameter, while the loss was {before.loss:.6g} and {signals.loss:.6g}",
        )  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave; its signals came as lists."""
        super().load_state_dict(state)
        self._newest, self._before = (values and Signals(*values) for values in (self._newest, self._before))

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding if some parameters' norms are the same as at the update before and at the last sample."""
        now, before = update, self._before
        if before is None or not now.grad_norm < float("inf"):
            return None
        if not len(now.grad_norms) == len(before.grad_norms) == len(sample.names) or not any(sample.changes):
            return None
        equal = {
            name: norm
            for name, norm, other in zip(sample.names, now.grad_norms, before.grad_norms, strict=True)
            if norm and norm == other
        }
        confirmed = [name for name, norm in equal.items() if self._suspects.get(name) == norm]
        if not any(name in self._suspects for name in equal):
            self._since = sample.step - 1
        self._suspects = equal
        # The bias of a last layer under an absolute error may well have one gradient for many updates; two do not.
        if len(confirmed) < 2 or now.loss == before.loss:
            return None
        return self.tell(
            sample.step, self._since, symptom_of("stale_gradients", "some"),
            f"equal to the last bit from update {self._since} on: {named(confirmed)}", tuple(confirmed),
        )  # fmt: skip


# How many times a norm has to grow in a training's first window at least: 20 to the power of 0.4 is 3.3. Later on the
# gradients of two networks that work against each other grow like that, too.
AT_LEAST = 3.0
# A sum of t gradients is about t to this power as large as one: 0.5 where they are noise, 1 where they agree.
POWERS = (0.4, 1.1)
# Share of the growth that this law has to explain, and its largest deviation, as a factor's logarithm.
EXPLAINED, DEVIATION = 0.95, 0.35
# Of some parameters alone the share may be lower, since other things have to be so. A sum of 15 gradients moves by one
# of them, a 15th where they agree, and swings by less; beside fresh ones a fourth at most. What grows for another
# reason, as gradients behind a head that starts near zero do, swings from batch to batch as others do. But a few next
# to the outputs are steady by nature, as means over a picture's pixels, and may grow: what is forgotten are all of an
# optimizer, or of a part of the network.
EXPLAINED_IN_PART, STEADY, STEADIER, LEAST_SHARE, FEWEST = 0.8, 0.05, 0.25, 0.25, 2
# Below, batches are so alike that nothing is steadier than another: what is left is how a curve bends, 1/15² there.
LEAST_SWING = 0.02


class NotZeroed(Base):
    """Gradients are added to those of the updates before: their norm grows by a law of its own.

    Of all parameters together, or of some while those of the others are fresh ones. `names` are the parameters'.
    """

    name = "gradients_not_zeroed"
    kept: ClassVar = ("_over",)

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names
        self._over = False

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """A finding after a training's first window, if all gradients so far were added up."""
        # The first that it sees: of two models that a script trains by turns, each skips the other's updates.
        over, self._over = self._over or updates[0].step >= WINDOW, True
        if over or not all(update.grad_norm > 0 for update in updates):
            return None
        return self._of_all(updates) or self._of_some(updates)

    def _of_all(self, updates: Sequence[Signals]) -> Finding | None:
        logs = [math.log(update.grad_norm) for update in updates]
        power, explained, deviation = _law(logs)
        grown = math.exp(logs[-1] - logs[0])
        by_law = POWERS[0] <= power <= POWERS[1] and explained >= EXPLAINED and deviation <= DEVIATION
        # A factorisation that leaves its small start grows by such a law as well, and swings by 0.05 to 0.1; sums of
        # gradients by 0.02 at most on the four hosts.
        if grown < AT_LEAST or not by_law or _swing(logs) > STEADY or _exponential(logs) > explained:
            return None
        return self.tell(
            updates[-1].step, 1, symptom_of("gradients_not_zeroed"),
            f"in the first {WINDOW} updates the gradient norm grew {grown:.3g} times, as "
            f"the number of updates to the power of {power:.2f}, which explains {explained:.1%} of it",
        )  # fmt: skip

    def _of_some(self, updates: Sequence[Signals]) -> Finding | None:
        norms = [update.grad_norms for update in updates]
        if any(len(row) != len(self._names) for row in norms):
            return None
        summed, swings_of_sums, swings = [], [], []
        for name, column in zip(self._names, zip(*norms, strict=True), strict=True):
            if not all(norm and norm < math.inf for norm in column):
                continue
            logs = [math.log(norm) for norm in column if norm]
            power, explained, _ = _law(logs)
            grown = logs[-1] - logs[0] >= math.log(AT_LEAST)
            if grown and POWERS[0] <= power <= POWERS[1] and explained >= EXPLAINED_IN_PART:
                summed.append(name)
                swings_of_sums.append(_swing(logs))
            else:
                swings.append(_swing(logs))
        if min(len(summed), len(swings)) < FEWEST or len(summed) < LEAST_SHARE * len(self._names):
            return None
        of_sums, usual = median(swings_of_sums), median(swings)
        if usual < LEAST_SWING or of_sums >= min(STEADY, STEADIER * usual):
            return None
        return self.tell(
            updates[-1].step, 1, symptom_of("gradients_not_zeroed", "some"),
            f"in the first {WINDOW} updates those of {len(summed)} of {len(self._names)} parameters grew as sums do "
            f"and swung by {of_sums:.2g} from update to update, the others' by {usual:.2g}: {named(summed)}",
            # A term on the same rows whose weight is turned up from zero looks the same.
            tuple(summed), milder=True,
        )  # fmt: skip


def _swing(logs: list[float]) -> float:
    """How far a norm goes up and down from update to update in the newer half, its growth taken off."""
    changes = [after - before for before, after in pairwise(logs[len(logs) // 2 :])]
    middle = median(changes)
    return median(abs(change - middle) for change in changes)


def _exponential(logs: list[float]) -> float:
    """What growth by a factor an update explains of the logarithms' variance: so does a network leave a small start."""
    return _fit(list(range(len(logs))), logs)[1]


def _law(logs: list[float]) -> tuple[float, float, float]:
    """Power of t that fits the logarithms of norms best, what it explains of their variance, the largest deviation."""
    return _fit([math.log(n + 1) for n in range(len(logs))], logs)


def _fit(times: Sequence[float], logs: list[float]) -> tuple[float, float, float]:
    """Slope of the line through the logarithms, what it explains of their variance, and the largest deviation."""
    time, level = math.fsum(times) / len(times), math.fsum(logs) / len(logs)
    spread = math.fsum((moment - time) ** 2 for moment in times)
    power = math.fsum((a - time) * (b - level) for a, b in zip(times, logs, strict=True)) / spread
    off = [b - level - power * (a - time) for a, b in zip(times, logs, strict=True)]
    whole = math.fsum((log - level) ** 2 for log in logs)
    return power, 1 - math.fsum(residual * residual for residual in off) / whole if whole else 0.0, max(map(abs, off))
