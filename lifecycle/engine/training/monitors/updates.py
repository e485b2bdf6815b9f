"""How large updates are: beside the weights, beside each other, and beside what the weights' precision can hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY, Sample, Signals

# Change over norm of all parameters together: at most 0.03 in two samples in a row and 0.08 in one, on 138 healthy odd
# trainings.
LARGE, VERY_LARGE = 0.12, 0.4
# Times the norm at the sample before: where updates are so large, weights soon are as well, and the share falls.
GROWN = 2.0
# Of the first update: small random weights, as a factorisation begins with, change by their own size (0.7 of the norm
# after it); this is four times as much.
REPLACED = 0.97
# Of one parameter alone, in CONFIRMED_ONE samples in a row: at most 0.11 on the same trainings.
LARGE_ONE, CONFIRMED_ONE = 0.5, 3
# Of what it began with, and so many times the median parameter's change of an element: weights that grow with their own
# updates hide these. Adam moves all elements about equally; with plain descent a last bias moved 24 times as far, by a
# tenth of what it began with, and none was above 11 times with half of it (85 healthy trainings, 240 updates).
OUTLIER = 30.0
# Of the norm of all parameters together, what is left from one sample to the next: at least 0.74 on the same, and less
# where a large start is learned down; then the loss falls as fast.
SHRUNK, FELL_AS_WELL = 0.5, 0.7
# Of the mean loss of the interval before, at most, for updates to do what they are meant to.
FELL = 0.9
# Beside the median of the others, at most, in two samples in a row: at least 0.005 on the same trainings, and 6e-5 in a
# single sample of a LoRA's start.
LEFT_BEHIND = 1e-4
# Share of the elements with a gradient that an update left as they were: for the median parameter at most 0.29 (batches
# of one row, in which many gradients are next to nothing), 0 on most.
ROUNDED = 0.6
CONFIRMED = 2
# Towards the end of a schedule updates are meant to vanish: a lower share of the largest rate shows nothing.
FULL_RATE = 0.5


class _FollowsLoss(Base):
    """Knows the mean loss of the newest window and of the one before it, or of the first update."""

    kept: ClassVar = ("_before", "_level")

    def __init__(self) -> None:
        super().__init__()
        self._before, self._level = math.nan, math.nan

    def after_window(self, updates: Sequence[Signals]) -> None:
        losses = [update.loss for update in updates]
        if math.isnan(self._level):
            self._level, losses = losses[0], losses[1:]
        self._before, self._level = self._level, math.fsum(losses) / len(losses)

    def loss_fell(self, share: float) -> bool:
        """True if it is at most that share of what it was."""
        return self._before - self._level > (1 - share) * abs(self._before)


class _AtFullRate(Base):
    """Knows the largest learning rate so far."""

    kept: ClassVar = ("_largest_rate",)

    def __init__(self) -> None:
        super().__init__()
        self._largest_rate = 0.0

    def after_window(self, updates: Sequence[Signals]) -> None:
        super().after_window(updates)
        self._largest_rate = max(self._largest_rate, *(update.learning_rate for update in updates))

    def shows(self, sample: Sample, update: Signals) -> bool:
        """True unless the sampled update was made at a rate that was meant to be low, or nothing is known of it."""
        self._largest_rate = max(self._largest_rate, update.learning_rate)
        known = update.grad_norm > 0 and len(update.grad_norms) == len(sample.names)
        return known and update.learning_rate >= FULL_RATE * self._largest_rate


class UpdateRatio(_AtFullRate, _FollowsLoss):
    """Change over norm: too large for the network, for one parameter, or far below that of the others.

    `elements` are those of each parameter.
    """

    name = "update_ratio"
    kept: ClassVar = (*_AtFullRate.kept, *_FollowsLoss.kept, "_counts", "_first", "_size", "_samples", "_first_ratio")

    def __init__(self, elements: Mapping[str, int]) -> None:
        super().__init__()
        self._roots = {name: math.sqrt(count) for name, count in elements.items()}
        self._counts: dict[str, int] = {}
        # Norms at the first sample. What starts at zero, as biases do, is not among them: it is small beside its
        # updates for as long as it is near zero.
        self._first: dict[str, float] | None = None
        self._size, self._samples, self._first_ratio = 0.0, 0, 0.0

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding of the whole network first, then of the parameters that stand out.

        Large updates under which the loss falls are a warning: that is what they are meant to do.
        """
        self._samples += 1
        if self._first is None:
            self._first = {
                name: norm for name, norm, change in zip(sample.names, sample.norms, sample.changes, strict=True)
                if norm > 1.01 * change
            }  # fmt: skip
        before, self._size = self._size, _size(sample)
        if not self.shows(sample, update):
            return None
        ratios = _ratios(sample, update.grad_norms)
        if not ratios:
            return None
        median = sorted(ratios.values())[(len(ratios) - 1) // 2]
        whole = update_ratio(sample)
        self._first_ratio = whole if self._samples == 1 else self._first_ratio
        # Weights that start small double soon, and are then about as large as the first update was.
        grown = self._size > GROWN * before > 0 and (self._samples > 2 or self._first_ratio > REPLACED)
        large = whole > LARGE or grown
        # Of small random weights, as a factorisation begins with, the first update of Adam is that large.
        if self._count("", large) >= CONFIRMED or (whole > VERY_LARGE and before > 0):
            return self.tell(
                sample.step, self._onset(sample, ""),
                symptom_of("update_ratio"),
                f"an update changes the weights by {whole:.2g} of their norm (usual are 0.0001 to 0.03), at a learning "
                f"rate of {update.learning_rate:.3g}; the norm is {self._size:.3g}, {before:.3g} at the sample before",
                milder=self.loss_fell(FELL),
            )  # fmt: skip
        return self._one_large(sample, ratios) or self._left_behind(sample, ratios, median)

    def _one_large(self, sample: Sample, ratios: dict[str, float]) -> Finding | None:
        changes = dict(zip(sample.names, sample.changes, strict=True))
        # What starts small beside the others is as large as these by right.
        starts = sorted(norm / self._roots[name] for name, norm in (self._first or {}).items())
        usual_start = starts[(len(starts) - 1) // 2] if starts else 0.0
        first = {n: max(norm, usual_start * self._roots[n]) for n, norm in (self._first or {}).items()}
        # How far an element of each was moved, as a root mean square.
        moved = {name: changes[name] / self._roots[name] for name in ratios}
        usual = sorted(moved.values())[(len(moved) - 1) // 2]

        def is_large(name: str) -> bool:
            outlies = moved[name] > OUTLIER * usual > 0 and changes[name] > LARGE_ONE * first[name]
            return ratios[name] > LARGE_ONE or outlies

        large = [name for name in ratios if name in first]
        large = [name for name in large if self._count(f"large {name}", is_large(name)) >= CONFIRMED_ONE]
        if not large:
            return None
        largest = max(large, key=lambda name: moved[name])
        return self.tell(
            sample.step, self._onset(sample, f"large {largest}"),
            symptom_of("layer_updates_too_large", "own size" if ratios[largest] > LARGE_ONE else ""),
            f"{CONFIRMED_ONE} samples in a row; now {largest} changes by {ratios[largest]:.2g} of its norm, which was "
            f"{(self._first or {})[largest]:.2g} at the start, an element by {moved[largest]:.2g}, the median "
            f"parameter's by {usual:.2g}: {named(large)}",
            tuple(large), what="layer_updates_too_large",
        )  # fmt: skip

    def _left_behind(self, sample: Sample, ratios: dict[str, float], median: float) -> Finding | None:
        behind = [
            name for name, ratio in ratios.items()
            if self._count(f"behind {name}", 0 < ratio < LEFT_BEHIND * median) >= CONFIRMED
        ]  # fmt: skip
        if not behind:
            return None
        return self.tell(
            sample.step, self._onset(sample, f"behind {behind[0]}"),
            symptom_of("layer_left_behind"),
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

    def _onset(self, sample: Sample, what: str) -> int:
        return max(0, sample.step - SAMPLE_EVERY * (self._counts[what] - 1))


def _ratios(sample: Sample, norms: list[float | None]) -> dict[str, float]:
    """Change over norm of each parameter that has a gradient and weights that are not zero."""
    return {
        name: sample.changes[n] / sample.norms[n]
        for n, name in enumerate(sample.names)
        if sample.trainable[n] and sample.norms[n] > 0 and norms[n]
    }


def update_ratio(sample: Sample) -> float:
    """Change over norm of all trainable parameters together."""
    size = _size(sample)
    return math.hypot(*(sample.changes[n] for n, ours in enumerate(sample.trainable) if ours)) / size if size else 0.0


def _size(sample: Sample) -> float:
    """Norm of all trainable parameters together."""
    return math.hypot(*(sample.norms[n] for n, ours in enumerate(sample.trainable) if ours))


class WeightsShrink(_FollowsLoss):
    """The weights of all parameters together halve from sample to sample, and the loss does not fall as fast."""

    name = "weights_shrink"
    kept: ClassVar = (*_FollowsLoss.kept, "_norms")

    def __init__(self) -> None:
        super().__init__()
        self._norms: dict[str, float] = {}

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding after a halving over which the loss has hardly fallen.

        Of the parameters that are trained in both samples: freezing some is no shrinking.
        """
        now = {name: sample.norms[n] for n, name in enumerate(sample.names) if sample.trainable[n]}
        both = now.keys() & self._norms.keys()
        size, before = (math.hypot(*(norms[name] for name in both)) for norms in (now, self._norms))
        self._norms = now
        if self.loss_fell(FELL_AS_WELL) or not 0 < size <= SHRUNK * before:
            return None
        return self.tell(
            sample.step, max(0, sample.step - SAMPLE_EVERY), symptom_of("weights_shrink"),
            f"their norm is {size:.3g}, {before:.3g} {SAMPLE_EVERY} updates before; the loss has hardly fallen by it",
        )  # fmt: skip


class RoundedAway(_AtFullRate):
    """Updates are smaller than what the weights' precision resolves: most elements stay bit for bit the same.

    `rounds_away` says of a parameter's name, norm and gradient's norm whether its type is too coarse for its updates.
    """

    name = "rounded_updates"
    kept: ClassVar = ("_largest_rate", "_samples", "_since")

    def __init__(self, rounds_away: Callable[[str, float, float], bool]) -> None:
        super().__init__()
        self._rounds_away = rounds_away
        self._samples, self._since = 0, 0

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding once most elements of most parameters stayed the same in CONFIRMED samples."""
        if not self.shows(sample, update):
            return None
        # What changes nothing at all is another thing, as a rate of zero or an optimizer that is not called, unless the
        # type is too coarse for it.
        ours = [n for n, norm in enumerate(update.grad_norms) if sample.trainable[n] and norm and sample.norms[n]]
        ours = [n for n in ours if sample.names[n] not in sample.left_out]
        changed = [n for n in ours if sample.changes[n]] or [n for n in ours if self._lost(n, sample, update)]
        shares = sorted(sample.unchanged[n] for n in changed)
        if not shares or shares[len(shares) // 2] < ROUNDED:
            self._samples = 0
            return None
        self._samples += 1
        self._since = sample.step if self._samples == 1 else self._since
        if self._samples < CONFIRMED:
            return None
        return self.tell(
            sample.step, self._since, symptom_of("rounded_updates"),
            f"the median parameter kept {shares[len(shares) // 2]:.0%} of the elements that have a gradient bit for "
            f"bit, at a learning rate of {update.learning_rate:.3g}",
        )  # fmt: skip

    def _lost(self, n: int, sample: Sample, update: Signals) -> bool:
        return self._rounds_away(sample.names[n], sample.norms[n], update.grad_norms[n] or 0.0)
