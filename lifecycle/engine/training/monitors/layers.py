"""Layers and parameters that take no part in the training: dead, without a gradient, unchanged, in no optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from fnmatch import fnmatch
from typing import ClassVar

from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import Sample, Signals

# Samples in a row that must show it. One is not enough: a head that starts at zero gives zeros before its first update,
# and a rate that starts at zero leaves all weights as they are.
CONFIRMED = 2
# Where it may well be by design: a gradient of zero that was not zero before, a layer that these rows do not call.
PATIENT = 6
# A gradient this much below the median of the others is rounding noise: that of a bias in front of batch norm, or of an
# attention's key bias, is zero but for rounding (1e-9 to 1e-7 of the others).
NOISE = 1e-5
# A unit in the last place of float32, of a number of size one: no type of these trainings' computing tells less apart.
LAST_PLACE = 2.0**-23
# Of the largest rate: less is on the way down.
FULL_RATE = 0.5


class DeadLayer(Base):
    """A layer gives zero for every feature and every row.

    Only a whole layer counts: in a network of which nine of ten activations are zero, with batches of few rows, most
    features are zero for all of them.
    """

    name = "dead_layer"
    kept: ClassVar = ("_since", "_samples")

    def __init__(self) -> None:
        super().__init__()
        self._since: dict[str, int] = {}
        self._samples: dict[str, int] = {}

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding once a layer was dead in CONFIRMED samples."""
        dead = [layer.name for layer in sample.layers if layer.zero_rows == 1.0 and layer.finite]
        self._since = {name: self._since.get(name, sample.step) for name in dead}
        self._samples = {name: self._samples.get(name, 0) + 1 for name in dead}
        confirmed = [name for name in dead if self._samples[name] >= CONFIRMED]
        if not confirmed:
            return None
        onset = self._since[confirmed[0]]
        return self.tell(
            sample.step, onset, symptom_of("dead_layer"),
            f"every feature of {named(confirmed)} was zero for all rows in {CONFIRMED} samples from update {onset} on",
            tuple(confirmed),
        )  # fmt: skip


class Unchanged(Base):
    """Trainable parameters without a gradient, with a gradient of zero, or with one that changes nothing.

    `rounds_away` says of a parameter's name, norm and gradient's norm whether its type is too coarse for its updates.
    What no longer moves since the schedule has brought the rate down is as it was asked for: such a parameter moved
    before at a higher rate, and by as much for its rate would now move by less than float32 resolves. A rate of zero
    asks for nothing. But where more of the `planned_steps` are left to move nothing than ever had half of the largest
    rate, the schedule is too short for the training, as one is that decays by update in the place of by epoch.
    """

    name = "unchanged_layer"
    kept: ClassVar = ("_why", "_since", "_samples", "_moved", "_pace", "_largest", "_at_full_rate")

    def __init__(
        self, frozen: tuple[str, ...], rounds_away: Callable[[str, float, float], bool], planned_steps: int
    ) -> None:
        super().__init__()
        self._frozen, self._rounds_away, self._planned = frozen, rounds_away, planned_steps
        self._why: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._samples: dict[str, int] = {}
        self._moved: list[str] = []
        # Of the newest sample in which each moved: its change for a rate of 1, and the rate.
        self._pace: dict[str, list[float]] = {}
        self._largest, self._at_full_rate = 0.0, 0

    def after_backward(self, signals: Signals) -> None:
        """Count the updates whose rate is near to the largest so far; those of a warm-up are."""
        self._largest = max(self._largest, signals.learning_rate)
        self._at_full_rate += signals.learning_rate >= FULL_RATE * self._largest

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding once a parameter had the same trouble in CONFIRMED samples."""
        # An update of which nothing is wanted, as of a margin that all rows keep, shows nothing.
        informative = update.grad_norm > 0 or update.loss != 0
        if not informative or not update.grad_norm < float("inf") or len(update.grad_norms) != len(sample.names):
            return None
        watched = [n for n, name in enumerate(sample.names) if sample.trainable[n] and not _matches(name, self._frozen)]
        reasons = {sample.names[n]: why for n in watched if (why := self._why_still(n, sample, update))}
        still = {name for name, why in reasons.items() if self._why.get(name) == why}
        self._since = {name: self._since[name] if name in still else sample.step for name in reasons}
        self._samples = {name: self._samples[name] + 1 if name in still else 1 for name in reasons}
        self._why = reasons
        self._moved += [
            sample.names[n] for n in watched if sample.names[n] not in reasons and sample.names[n] not in self._moved
        ]
        return self._finding(sample, update, len(watched))

    def _why_still(self, n: int, sample: Sample, update: Signals) -> str:
        why, norm, name = _why_still(n, sample, update.grad_norms), update.grad_norms[n], sample.names[n]
        if norm and sample.changes[n] > 0 and update.learning_rate > 0:
            self._pace[name] = [sample.changes[n] / update.learning_rate, update.learning_rate]
        if why != "unchanged_layer" or norm is None:
            return why
        if self._asked_for(n, sample, update.learning_rate):
            return BY_SCHEDULE if self._planned - sample.step > self._at_full_rate else ""
        return "rounded_updates" if self._rounds_away(name, sample.norms[n], norm) else why

    def _asked_for(self, n: int, sample: Sample, rate: float) -> bool:
        """True if what moved at a higher rate would at its pace and this rate move by less than float32 resolves."""
        pace, before = self._pace.get(sample.names[n], (math.inf, 0.0))
        return 0 < rate < before and pace * rate < LAST_PLACE * sample.norms[n]

    def _needed(self, name: str, sample: Sample) -> float:
        """Samples in a row, where it is a minority of the parameters."""
        why, moved = self._why[name], name in self._moved
        if why == "no_gradient" and not _called(name, sample):
            # An expert that no row chose is not even called: that is what it is made for.
            return math.inf if moved else PATIENT
        return PATIENT if why == "zero_gradient" and moved else CONFIRMED

    def _finding(self, sample: Sample, update: Signals, watched: int) -> Finding | None:
        for why, symptom in WHY.items():
            told = "unchanged_layer" if why == BY_SCHEDULE else why
            names = [name for name, kind in self._why.items() if kind == why and self._samples[name] >= CONFIRMED]
            # That no gradient is left at all may pass by, too.
            if 2 * len(names) < watched or update.grad_norm == 0:
                names = [name for name in names if self._samples[name] >= self._needed(name, sample)]
            if not names or told in self._told:
                continue
            onset = min(self._since[name] for name in names)
            # A head that is not used is common; a network of which most does not train is no training.
            return self.tell(
                sample.step, onset, symptom,
                f"{len(names)} of {watched} trainable parameters from update {onset} on ({named(names)}), at a "
                f"learning rate of {update.learning_rate:.3g} and a gradient norm of {update.grad_norm:.3g} in all"
                + self._of_schedule(sample.step) * (why == BY_SCHEDULE),
                tuple(names), what=told, milder=2 * len(names) < watched or why == BY_SCHEDULE,
                known_cause="schedule_at_zero" if why == BY_SCHEDULE else "",
            )  # fmt: skip
        return None

    def _of_schedule(self, step: int) -> str:
        return (
            f": the schedule has brought the rate from {self._largest:.3g} below what float32 resolves, with "
            f"{self._planned - step} of {self._planned} updates left; {self._at_full_rate} had half of it or more"
        )


WHY = {name: symptom_of(name) for name in ("no_gradient", "zero_gradient", "rounded_updates", "unchanged_layer")}
# Told as unchanged_layer, and milder: it is the schedule that leaves nothing to the rest of the training.
BY_SCHEDULE = "unchanged_by_schedule"
WHY[BY_SCHEDULE] = WHY["unchanged_layer"]


def _called(name: str, sample: Sample) -> bool:
    """True if the sampled forward pass used the parameter's module."""
    module = name.rpartition(".")[0]
    return any(layer.name == module or layer.name.startswith(f"{module}.") or not module for layer in sample.layers)


def _why_still(n: int, sample: Sample, norms: list[float | None]) -> str:
    """Why a parameter did not change by this update; "" if it did or need not."""
    norm = norms[n]
    if norm is None:
        return "no_gradient"
    if norm == 0:
        return "zero_gradient"
    nonzero = sorted(other for other in norms if other)
    meant = norm > NOISE * nonzero[len(nonzero) // 2]
    # Of a large tensor a part is looked at: one without a gradient there says nothing.
    still = sample.changes[n] == 0 and sample.unchanged[n] == 1.0
    return "unchanged_layer" if still and meant and sample.names[n] not in sample.left_out else ""


class NotOptimized(Base):
    """Trainable parameters that no optimizer has: from the start, or since a part of the model was replaced."""

    name = "not_in_optimizer"

    def __init__(self, frozen: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._frozen = frozen

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding at once: nothing here is a matter of chance."""
        left_out = [name for name in sample.left_out if not _matches(name, self._frozen)]
        if not left_out:
            return None
        trainable = sum(sample.trainable)
        # Left out from the start may be meant, if most parameters are in one; a part lost on the way is not.
        return self.tell(
            sample.step, sample.step, symptom_of("not_in_optimizer"),
            f"{len(left_out)} of {trainable} trainable parameters at update {sample.step}: {named(left_out)}",
            tuple(left_out), milder=not sample.step and 2 * len(left_out) < trainable,
        )  # fmt: skip


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
