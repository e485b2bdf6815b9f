"""Jumps of loss and gradient: a level that stays above what was there, and one batch far above all others.

A level is told by the order of losses alone. The newest must lie above those of the updates before as they do by chance
in FALSE_ALARMS of all trainings, whatever the losses' distribution: heavy tails, a rare row in few batches, batches of
one (ranks.py). That holds where losses are drawn alike for a window, or fall. Harder rows, a restarted rate and a loss
that goes up and down are not of that kind. So a level must also lie far above where the training began, since these
mostly stay below what an untrained network gives.

One batch has no such rate: each is the highest of 128 once in 128 batches. It counts if it lies beyond the window's
highest by as much again and half as much, on a scale that is a logarithm for large values and linear around zero, so
that heavy tails pass; it is a warning.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import islice
from typing import Any

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.non_finite import finite
from trainworthy.lifecycle.engine.training.monitors.ranks import FALSE_ALARMS, UPDATES, bar
from trainworthy.lifecycle.gates.monitor_words import severity_of, symptom_of
from trainworthy.lifecycle.protocol.signals import Signals

# Updates that the newest are held against, at most and at least; as often bars are set anew.
WINDOW, FEWEST = 128, 32
# How many the newest are, and how many of them must lie above: few show a jump soon, more one that spares some batches
# or comes slowly. How rare that must be follows from the rate, of which each has an equal part.
NEWEST = ((6, 6), (16, 11), (16, 16))
LONGEST = max(newest for newest, _ in NEWEST)
CHANCE = FALSE_ALARMS / UPDATES / len(NEWEST)
# A level must be that many times the one at which the training began: norms of gradients move more than losses do.
LOSS_ABOVE_START, GRADIENT_ABOVE_START = 2.0, 10.0
# The first values, whose median is where the training began until there are more.
FIRST = 8
# Deviations above the median that a single batch must have; beyond the highest of the window, as a multiple of its own
# distance from the median; and that many times the median.
BATCH_Z, TAIL, ABOVE_MEDIAN = 8.0, 2.5, 5.0
# Smallest deviation on the log scale: what lies within a twentieth is equal.
SMALLEST = 0.05
MAD = 1.4826


class Spikes(Base):
    """`outlier_batch`, a warning, and `loss_spike` or `gradient_spike`, critical, once an episode each."""

    name = "spikes"

    def __init__(self) -> None:
        super().__init__()
        self._loss, self._gradient = _Level(LOSS_ABOVE_START), _Level(GRADIENT_ABOVE_START)
        self._until = -1

    def after_backward(self, signals: Signals) -> Finding | None:
        if not finite(signals.loss, signals.grad_norm):
            return None
        loss, gradient = (
            self._loss.high(signals.step, signals.loss),
            self._gradient.high(signals.step, signals.grad_norm),
        )
        return self._judged(signals) if loss or gradient else None

    def state_dict(self) -> dict[str, Any]:
        levels = {"loss": self._loss.state_dict(), "gradient": self._gradient.state_dict()}
        return {**levels, "until": self._until}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loss.load_state_dict(state["loss"])
        self._gradient.load_state_dict(state["gradient"])
        self._until = state["until"]

    def _judged(self, signals: Signals) -> Finding | None:
        """What a high value is part of: a level that stays, or one batch."""
        loss, gradient = self._loss, self._gradient
        if signals.step > self._until:
            for newest, above in NEWEST:
                high = loss.is_high(newest), gradient.is_high(newest)
                if not any(high) or not loss.stays(newest, above):
                    continue
                if high[0] and (evidence := loss.stays(newest, above)):
                    return self._spike("loss", evidence, signals.step, loss.onset(newest))
                if high[1] and (evidence := gradient.stays(newest, above)):
                    return self._spike("gradient", evidence, signals.step, gradient.onset(newest))
        for what, level in (("loss", loss), ("gradient", gradient)):
            if evidence := level.one_batch():
                return Finding(
                    "outlier_batch", severity_of("outlier_batch"), signals.step, signals.step,
                    symptom_of("outlier_batch", what), f"step {signals.step}: {evidence}",
                )  # fmt: skip
        return None

    def _spike(self, what: str, evidence: str, step: int, onset: int) -> Finding:
        # The same level again is the same alarm, until it has become the usual one.
        self._until = step + WINDOW
        name = f"{what}_spike"
        return Finding(name, severity_of(name), step, onset, symptom_of(name), f"since step {onset}: {evidence}")


class _Level:
    """One signal's newest values and the window before them."""

    def __init__(self, above_start: float) -> None:
        self._above_start = above_start
        self._values: deque[tuple[int, float]] = deque(maxlen=WINDOW + LONGEST)
        self._median, self._start, self._far, self._outlier = -math.inf, -math.inf, math.inf, math.inf
        self._count = 0

    def high(self, step: int, value: float) -> bool:
        """Take the value of an update; True if it is worth a closer look."""
        self._values.append((step, value))
        self._count += 1
        if self._count % FEWEST == 0 or self._count == FIRST:
            self._set_bars()
        return value > self._far or value > self._outlier

    def onset(self, newest: int) -> int:
        """Since when the newest values are far above where the training began."""
        return next((step for step, value in list(self._values)[-newest:] if value > self._far), self._values[-1][0])

    def is_high(self, newest: int) -> bool:
        """True if the median of so many newest values is far above where the training began."""
        return statistics.median(value for _, value in islice(reversed(self._values), newest)) > self._far

    def stays(self, newest: int, above: int) -> str:
        """How so many of the newest values lie above those before, as chance hardly ever brings; "" if they do not."""
        values = [value for _, value in self._values]
        before, newer = values[-WINDOW - newest : -newest], values[-newest:]
        if len(before) < FEWEST:
            return ""
        lowest = bar(before, newest, above, CHANCE)
        if (higher := sum(value > lowest for value in newer)) < above:
            return ""
        return (
            f"{higher} of the newest {newest} updates lie above {lowest:.4g}, as by chance in fewer than "
            f"{FALSE_ALARMS:g} of trainings; their median is {statistics.median(newer):.4g}, at the start it was "
            f"{self._start:.4g}"
        )

    def one_batch(self) -> str:
        """How the newest value lies above all others; "" if it does not."""
        *others, value = [value for _, value in self._values]
        if len(others) < WINDOW // 2:
            return ""
        middle, scale, unit = _middle(others)
        far, highest = _scaled(value, unit) - middle, _scaled(max(others), unit) - middle
        usual = statistics.median(others)
        if far <= BATCH_Z * scale or far <= TAIL * highest or value - usual <= (ABOVE_MEDIAN - 1) * abs(usual):
            return ""
        return (
            f"{value:.4g}, {far / scale:.0f} deviations above {usual:.4g}, the median of {len(others)} updates before; "
            f"their highest is {max(others):.4g}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "values": list(self._values), "count": self._count, "median": self._median, "start": self._start,
            "far": self._far, "outlier": self._outlier,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = deque(((step, value) for step, value in state["values"]), maxlen=WINDOW + LONGEST)
        self._count, self._start = state["count"], state["start"]
        # A checkpoint from before there were these has none: they are set anew after some updates.
        self._median = state.get("median", self._start)
        self._far, self._outlier = state.get("far", math.inf), state.get("outlier", math.inf)

    def _set_bars(self) -> None:
        """Where the training began, as long as it begins, and what a single batch must exceed to be looked at."""
        values = [value for _, value in self._values]
        # By the values before the newest, which may be a jump already.
        values = values[:-FIRST] or values
        if self._count <= WINDOW:
            self._median = max(self._median, statistics.median(values))
            # Of losses with a heavy tail the mean, which is what is trained, lies far above the median.
            self._start = max(self._median, statistics.fmean(values))
        if self._count >= FEWEST:
            self._far = self._start + (self._above_start - 1) * abs(self._start)
            middle, scale, unit = _middle(values)
            self._outlier = unit * math.sinh(middle + BATCH_Z / 2 * scale)


def _middle(values: list[float]) -> tuple[float, float, float]:
    """Median and deviation on the scale, and the scale's unit: the median size."""
    unit = statistics.median(abs(value) for value in values) or 1.0
    scaled = [_scaled(value, unit) for value in values]
    middle = statistics.median(scaled)
    return middle, max(SMALLEST, MAD * statistics.median(abs(value - middle) for value in scaled)), unit


def _scaled(value: float, unit: float) -> float:
    return math.asinh(value / unit)
