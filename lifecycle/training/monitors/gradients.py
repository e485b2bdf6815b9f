"""Gradients that are not those of this update's rows: left from earlier ones, or added to them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from lifecycle.training.monitors.base import Base, named
from lifecycle.training.monitors.monitor import Finding
from lifecycle.training.monitors.signals import Sample, Signals

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

    def after_backward(self, seen: Signals) -> Finding | None:
        """A finding after EQUAL updates with the gradients of the one before."""
        before, self._before, self._newest = self._newest, self._newest, seen
        if before is None or seen.grad_norm != before.grad_norm or not 0 < seen.grad_norm < float("inf"):
            self._equal = 0
            return None
        # At a rate of 0 equal rows have equal gradients: a whole batch before its first update.
        same = seen.grad_norms == before.grad_norms and not (
            seen.loss == before.loss and seen.squared == before.squared
        )
        self._equal = self._equal + 1 if same else 0
        if self._equal < EQUAL:
            return None
        return self.tell(
            "critical", seen.step, seen.step - EQUAL + 1, "the gradients are those of an earlier update",
            f"{EQUAL + 1} updates in a row with a gradient norm of {seen.grad_norm!r}, equal to the last bit for every "
            f"parameter, while the loss was {before.loss:.6g} and {seen.loss:.6g}",
        )  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave; its signals came as lists."""
        super().load_state_dict(state)
        self._newest, self._before = (one and Signals(*one) for one in (self._newest, self._before))

    def after_sample(self, seen: Sample) -> Finding | None:
        """A finding if some parameters' norms are the same as at the update before and at the last sample."""
        now, before = self._newest, self._before
        if now is None or before is None or now.step != seen.step or not now.grad_norm < float("inf"):
            return None
        if not len(now.grad_norms) == len(before.grad_norms) == len(seen.names) or not any(seen.changes):
            return None
        equal = {
            name: norm
            for name, norm, other in zip(seen.names, now.grad_norms, before.grad_norms, strict=True)
            if norm and norm == other
        }
        confirmed = [name for name, norm in equal.items() if self._suspects.get(name) == norm]
        if not any(name in self._suspects for name in equal):
            self._since = seen.step - 1
        self._suspects = equal
        # The bias of a last layer under an absolute error may well have one gradient for many updates; two do not.
        if len(confirmed) < 2 or now.loss == before.loss:
            return None
        return self.tell(
            "critical", seen.step, self._since, "the gradients of some parameters are those of an earlier update",
            f"equal to the last bit from update {self._since} on: {named(confirmed)}", tuple(confirmed),
        )  # fmt: skip


# The first updates, in which growth is looked for, and how many times it has to grow at least: 20 to the power of 0.4
# is 3.3. Later on the gradients of two networks that work against each other grow like that, too.
GROWS, AT_LEAST = 20, 3.0
# A sum of t gradients is about t to this power as large as one: 0.5 where they are noise, 1 where they agree.
POWERS = (0.4, 1.1)
# Share of the growth that this law has to explain, and its largest deviation, as a factor's logarithm.
EXPLAINED, DEVIATION = 0.95, 0.35


class NotZeroed(Base):
    """Gradients are added to those of the updates before: their norm grows by a law of its own."""

    name = "gradients_not_zeroed"
    kept: ClassVar = ("_logs",)

    def __init__(self) -> None:
        super().__init__()
        self._logs: list[float] = []

    def after_backward(self, seen: Signals) -> Finding | None:
        """A finding at the GROWS-th update of a training, if all gradients so far were added up."""
        if seen.step != len(self._logs) or seen.step >= GROWS or not 0 < seen.grad_norm < math.inf:
            return None
        self._logs.append(math.log(seen.grad_norm))
        if len(self._logs) < GROWS or self._logs[-1] - self._logs[0] < math.log(AT_LEAST):
            return None
        power, explained, deviation = _law(self._logs)
        if not (POWERS[0] <= power <= POWERS[1] and explained >= EXPLAINED and deviation <= DEVIATION):
            return None
        grown = math.exp(self._logs[-1] - self._logs[0])
        return self.tell(
            "critical", seen.step, 1, "gradients are added to those of earlier updates",
            f"in the first {GROWS} updates the gradient norm grew {grown:.3g} times, as "
            f"the number of updates to the power of {power:.2f}, which explains {explained:.1%} of it",
        )  # fmt: skip


def _law(logs: list[float]) -> tuple[float, float, float]:
    """Power of t that fits the logarithms of norms best, what it explains of their variance, the largest deviation."""
    times = [math.log(n + 1) for n in range(len(logs))]
    time, level = math.fsum(times) / len(times), math.fsum(logs) / len(logs)
    spread = math.fsum((one - time) ** 2 for one in times)
    power = math.fsum((a - time) * (b - level) for a, b in zip(times, logs, strict=True)) / spread
    off = [b - level - power * (a - time) for a, b in zip(times, logs, strict=True)]
    whole = math.fsum((one - level) ** 2 for one in logs)
    return power, 1 - math.fsum(one * one for one in off) / whole, max(map(abs, off))
