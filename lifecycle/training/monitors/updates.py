"""How large updates are: beside the weights, beside each other, and beside what the weights' precision can hold."""

from __future__ import annotations

import math
from typing import ClassVar

from lifecycle.training.monitors.base import Base, named
from lifecycle.training.monitors.monitor import Finding
from lifecycle.training.monitors.signals import Sample, Signals

# Change over norm of all parameters together: at most 0.03 in two samples in a row and 0.08 in one, on 138 healthy odd
# trainings.
LARGE, VERY_LARGE = 0.12, 0.4
# Times the norm at the sample before: where updates are so large, weights soon are as well, and the share falls.
GROWN = 2.0
# Of one parameter alone, in CONFIRMED_ONE samples in a row: at most 0.11 on the same trainings.
LARGE_ONE, CONFIRMED_ONE = 0.5, 3
# Beside the median of the others, at most, in two samples in a row: at least 0.005 on the same trainings, and 6e-5 in a
# single sample of a LoRA's start.
LEFT_BEHIND = 1e-4
# Share of the elements with a gradient that an update left as they were: for the median parameter at most 0.29 (batches
# of one row, in which many gradients are next to nothing), 0 on most.
ROUNDED = 0.6
CONFIRMED = 2
# Towards the end of a schedule updates are meant to vanish: a lower share of the largest rate shows nothing.
FULL_RATE = 0.5


class _AtFullRate(Base):
    """Knows the learning rate of the sampled update, and the largest so far."""

    kept: ClassVar = ("_largest_rate",)

    def __init__(self) -> None:
        super().__init__()
        self._largest_rate = 0.0
        self._newest: Signals | None = None

    def after_backward(self, seen: Signals) -> None:
        self._newest = seen
        if seen.learning_rate > self._largest_rate:
            self._largest_rate = seen.learning_rate

    def applied(self, seen: Sample) -> Signals | None:
        """The sampled update's signals, None if it was left out or made at a rate that was meant to be low."""
        now = self._newest
        if now is None or now.step != seen.step or not 0 < now.grad_norm < math.inf:
            return None
        if len(now.grad_norms) != len(seen.names):
            return None
        return now if now.learning_rate >= FULL_RATE * self._largest_rate else None


class UpdateRatio(_AtFullRate):
    """Change over norm: too large for the network, for one parameter, or far below that of the others."""

    name = "update_ratio"
    kept: ClassVar = ("_largest_rate", "_counts", "_from_zero", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}
        self._from_zero: list[str] | None = None
        self._size = 0.0

    def after_sample(self, seen: Sample) -> Finding | None:
        """A finding of the whole network first, then of the parameters that stand out."""
        if self._from_zero is None:
            # What starts at zero, as biases do, is small beside its updates for as long as it is near zero.
            self._from_zero = [
                name for name, norm, change in zip(seen.names, seen.norms, seen.changes, strict=True)
                if norm <= 1.01 * change
            ]  # fmt: skip
        before, self._size = self._size, _size(seen)
        now = self.applied(seen)
        if now is None:
            return None
        ratios = _ratios(seen, now.grad_norms)
        if not ratios:
            return None
        median = sorted(ratios.values())[(len(ratios) - 1) // 2]
        whole = update_ratio(seen)
        large = whole > LARGE or self._size > GROWN * before > 0
        if self._count("", large) >= CONFIRMED or whole > VERY_LARGE:
            return self.tell(
                "critical", seen.step, self._onset(seen, ""), "updates are too large beside the weights",
                f"an update changes the weights by {whole:.2g} of their norm (usual are 0.0001 to 0.03), at a learning "
                f"rate of {now.learning_rate:.3g}; the norm is {self._size:.3g}, {before:.3g} at the sample before",
            )  # fmt: skip
        return self._one_large(seen, ratios) or self._left_behind(seen, ratios, median)

    def _one_large(self, seen: Sample, ratios: dict[str, float]) -> Finding | None:
        large = [
            name for name, ratio in ratios.items() if self._count(f"large {name}", ratio > LARGE_ONE) >= CONFIRMED_ONE
        ]
        large = [name for name in large if name not in (self._from_zero or ())]
        if not large:
            return None
        return self.tell(
            "warning", seen.step, self._onset(seen, f"large {large[0]}"), "some parameters change by their own size",
            f"{CONFIRMED_ONE} samples in a row with a change of {ratios[large[0]]:.2g} of the norm: {named(large)}",
            tuple(large), what="layer_updates_too_large",
        )  # fmt: skip

    def _left_behind(self, seen: Sample, ratios: dict[str, float], median: float) -> Finding | None:
        behind = [
            name for name, ratio in ratios.items()
            if self._count(f"behind {name}", 0 < ratio < LEFT_BEHIND * median) >= CONFIRMED
        ]  # fmt: skip
        if not behind:
            return None
        return self.tell(
            "warning", seen.step, self._onset(seen, f"behind {behind[0]}"),
            "some parameters hardly change beside the others",
            f"an update changes {named(behind)} by {ratios[behind[0]]:.2g} of the norm, the median parameter by "
            f"{median:.2g}",
            tuple(behind), what="layer_left_behind",
        )  # fmt: skip

    def _count(self, what: str, is_so: bool) -> int:
        """How many samples in a row it has been so, this one included."""
        if is_so:
            self._counts[what] = self._counts.get(what, 0) + 1
            return self._counts[what]
        self._counts.pop(what, None)
        return 0

    def _onset(self, seen: Sample, what: str) -> int:
        from lifecycle.training.monitors.signals import SAMPLE_EVERY

        return max(0, seen.step - SAMPLE_EVERY * (self._counts[what] - 1))


def _ratios(seen: Sample, norms: list[float | None]) -> dict[str, float]:
    """Change over norm of each parameter that has a gradient and weights that are not zero."""
    return {
        name: seen.changes[n] / seen.norms[n]
        for n, name in enumerate(seen.names)
        if seen.trainable[n] and seen.norms[n] > 0 and norms[n]
    }


def update_ratio(seen: Sample) -> float:
    """Change over norm of all trainable parameters together."""
    size = _size(seen)
    return math.hypot(*(seen.changes[n] for n, ours in enumerate(seen.trainable) if ours)) / size if size else 0.0


def _size(seen: Sample) -> float:
    """Norm of all trainable parameters together."""
    return math.hypot(*(seen.norms[n] for n, ours in enumerate(seen.trainable) if ours))


class RoundedAway(_AtFullRate):
    """Updates are smaller than what the weights' precision resolves: most elements stay bit for bit the same."""

    name = "rounded_updates"
    kept: ClassVar = ("_largest_rate", "_samples", "_since")

    def __init__(self) -> None:
        super().__init__()
        self._samples, self._since = 0, 0

    def after_sample(self, seen: Sample) -> Finding | None:
        """A finding once most elements of most parameters stayed the same in CONFIRMED samples."""
        now = self.applied(seen)
        if now is None:
            return None
        # A group whose rate is zero changes nothing at all: that is another thing, unless nothing else changes either.
        ours = [n for n, norm in enumerate(now.grad_norms) if seen.trainable[n] and norm and seen.norms[n]]
        ours = [n for n in ours if seen.names[n] not in seen.left_out]
        changed = [n for n in ours if seen.changes[n]] or (ours if now.learning_rate > 0 else [])
        shares = sorted(seen.unchanged[n] for n in changed)
        if not shares or shares[len(shares) // 2] < ROUNDED:
            self._samples = 0
            return None
        self._samples += 1
        self._since = seen.step if self._samples == 1 else self._since
        if self._samples < CONFIRMED:
            return None
        return self.tell(
            "critical", seen.step, self._since, "updates are rounded away",
            f"the median parameter kept {shares[len(shares) // 2]:.0%} of the elements that have a gradient bit for "
            f"bit, at a learning rate of {now.learning_rate:.3g}",
        )  # fmt: skip
