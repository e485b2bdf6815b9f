"""Jumps of loss and gradient: one batch far above all others, and a level that stays.

Both are judged on a scale that is a logarithm for large values and linear around zero, so that losses of any sign have
one, by a robust z: the distance from the running median in medians' absolute deviations. What a training does anyway
is no alarm: one batch counts only if it lies beyond the window's own highest by as much again and half as much, so that
heavy tails pass; a level only if it is also above where the training began, so that harder rows, a restarted rate and a
loss that goes up and down pass, which all stay below what an untrained network gives.

Where a batch holds one rare row or none, most batches look alike, and eight with a rare row in most of them are far
above these. So a level must also lie above the window by more than its own rows' spread can bring by chance.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.non_finite import finite
from trainworthy.lifecycle.gates.monitor_words import severity_of, symptom_of
from trainworthy.lifecycle.protocol.signals import Signals

# Updates that the newest are held against, and how many are needed; how many the newest are.
WINDOW, FEWEST, NEWEST = 128, 20, 8
# Deviations of a single value above the median that a level, by its own median, and a single batch must have.
LEVEL_Z, BATCH_Z = 4.0, 8.0
# Beyond the highest of the window, as a multiple of its own distance from the median.
TAIL = 2.5
# Smallest deviation on the log scale: what lies within a twentieth is equal.
SMALLEST = 0.05
# A level must be that many times the one at which the training began, which is the highest of its first windows: norms
# of gradients move more than losses do.
LOSS_ABOVE_START, GRADIENT_ABOVE_START = 2.0, 10.0
# Standard errors of the rows' mean, by their own spread, that a level must lie above the window's rows. Simulated
# positives of 0.2 to 2 % in batches of 32 and 128 gave an alarm in 39 of 90 healthy trainings without it, and in none
# with it. Eight batches with k rare rows where one is usual lie (k - 1) / sqrt(k) above: 27 of them are needed.
# Few rows may all be alike: seven or eight positives among eight rows have next to no spread of their own. So they must
# also lie above by the spread of the rows before, as far as Student's law of so few asks in place of the normal one
# (17.7 for eight rows, 8.3 for sixteen, 5.1 for 256); or all newest updates above all but so many of the window, where
# the first of a spike may be by now: in a full window that is chance once in 200 million. With batches of one and 15 to
# 24 % positives that inputs do not tell, 10 of 18 simulated trainings of 10,000 updates had an alarm without this, none
# with it; of losses that blow up in batches of one, 79 of 80 were told instead of 80.
NOT_BY_CHANCE = 5.0
# ... and a single batch that many times the median.
ABOVE_MEDIAN = 5.0
# How often the bar is set anew, and when it is first: as soon as there are enough values.
BAR_EVERY = 32
FIRST_BARS = (NEWEST, NEWEST + FEWEST)
MAD = 1.4826


class Spikes(Base):
    """`outlier_batch`, a warning, and `loss_spike` or `gradient_spike`, critical, once an episode each.

    In a game these are a warning: of 17 trainings of two networks against each other 13 jumped to above twice the
    start, as far as any fault makes it, and came back.
    """

    name = "spikes"

    def __init__(self, game: bool = False) -> None:
        super().__init__()
        self.game = game
        self._loss, self._gradient = _Level(LOSS_ABOVE_START), _Level(GRADIENT_ABOVE_START)
        # Of each update its rows, and the sums of their losses and of the squares of these.
        self._sums: deque[tuple[float, float, float]] = deque(maxlen=WINDOW + NEWEST)
        self._until = -1

    def after_backward(self, seen: Signals) -> Finding | None:
        if not finite(seen.loss, seen.grad_norm):
            return None
        self._sums.append((seen.rows, seen.loss * seen.rows, seen.squared * seen.rows))
        loss, gradient = self._loss.high(seen.step, seen.loss), self._gradient.high(seen.step, seen.grad_norm)
        return self._judged(seen) if loss or gradient else None

    def state_dict(self) -> dict[str, Any]:
        levels = {"loss": self._loss.state_dict(), "gradient": self._gradient.state_dict()}
        return {**levels, "sums": list(self._sums), "until": self._until}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loss.load_state_dict(state["loss"])
        self._gradient.load_state_dict(state["gradient"])
        self._sums = deque(map(tuple, state["sums"]), maxlen=WINDOW + NEWEST)
        self._until = state["until"]

    def _judged(self, seen: Signals) -> Finding | None:
        """What a value above the bar is part of: a level that stays, or one batch."""
        loss, gradient = self._loss, self._gradient
        if seen.step > self._until and (told := loss.stays()) and self._not_by_chance():
            return self._spike("loss", told, seen.step, loss.onset)
        if seen.step > self._until and (told := gradient.stays()) and loss.rose() and self._not_by_chance():
            return self._spike("gradient", told, seen.step, gradient.onset)
        for what, level in (("loss", loss), ("gradient", gradient)):
            if told := level.one_batch():
                return Finding(
                    "outlier_batch", severity_of("outlier_batch"), seen.step, seen.step,
                    symptom_of("outlier_batch", what), f"step {seen.step}: {told}",
                )  # fmt: skip
        return None

    def _not_by_chance(self) -> bool:
        """True if the newest updates' rows lie above those before by more than rows of their spread do by chance."""
        sums = list(self._sums)
        new, before = (tuple(map(math.fsum, zip(*part, strict=True))) for part in (sums[-NEWEST:], sums[:-NEWEST]))
        rise = new[1] / new[0] - before[1] / before[0]
        apart = math.sqrt(_variance(*new) / new[0] + _variance(*before) / before[0])
        drawn = math.sqrt(_variance(*before) * (1 / new[0] + 1 / before[0]))
        means = [total / rows for rows, total, _ in sums]
        beyond = min(means[-NEWEST:]) > sorted(means[:-NEWEST])[-NEWEST - 1]
        return rise > NOT_BY_CHANCE * apart and (beyond or rise > _of_few(NOT_BY_CHANCE, new[0]) * drawn)

    def _spike(self, what: str, told: str, step: int, onset: int) -> Finding:
        # The same level again is the same alarm, until it has become the usual one.
        self._until = step + WINDOW
        name = f"{what}_spike"
        severity = "warning" if self.game else severity_of(name)
        return Finding(name, severity, step, onset, symptom_of(name), f"since step {onset}: {told}")


class _Level:
    """One signal's newest values and the window before them."""

    def __init__(self, above_start: float) -> None:
        self._above_start = above_start
        self._values: deque[tuple[int, float]] = deque(maxlen=WINDOW + NEWEST)
        self._bar, self._start, self._count = math.inf, -math.inf, 0

    def high(self, step: int, value: float) -> bool:
        """Take the value of an update; True if it is worth a closer look."""
        self._values.append((step, value))
        self._count += 1
        if self._count % BAR_EVERY == 0 or self._count in FIRST_BARS:
            self._set_bar()
        return value > self._bar

    @property
    def onset(self) -> int:
        """Since when the newest values are above the bar."""
        newest = [step for step, value in self._newest() if value > self._bar]
        return newest[0] if newest else self._values[-1][0]

    def stays(self) -> str:
        """How the newest values lie above the window and the start; "" if they do not."""
        before = self._before()
        if len(before) < FEWEST:
            return ""
        middle, scale, unit = _middle(before)
        level = statistics.median(value for _, value in self._newest())
        z = (_scaled(level, unit) - middle) / scale
        above = level - self._start > (self._above_start - 1) * abs(self._start)
        if z <= LEVEL_Z or not above:
            return ""
        usual = statistics.median(before)
        return (
            f"the newest {NEWEST} updates' median {level:.4g} lies {z:.1f} deviations above {usual:.4g}, that of those "
            f"before (at most {LEVEL_Z:.0f} are usual); at the start it was {self._start:.4g}"
        )

    def rose(self) -> bool:
        """True if the newest values lie above the window's."""
        before = self._before()
        if len(before) < FEWEST:
            return False
        middle, scale, unit = _middle(before)
        newest = statistics.median(value for _, value in self._newest())
        return _scaled(newest, unit) > middle + scale

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
        return {"values": list(self._values), "bar": self._bar, "start": self._start, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = deque(((step, value) for step, value in state["values"]), maxlen=WINDOW + NEWEST)
        self._bar, self._start, self._count = state["bar"], state["start"], state["count"]

    def _set_bar(self) -> None:
        """By the values before the newest, so that a level that stays is above it for some time."""
        before = self._before()
        if self._count == NEWEST:
            self._start = statistics.median(value for _, value in self._values)
        if len(before) < FEWEST:
            return
        middle, scale, unit = _middle(before)
        if self._count <= WINDOW:
            self._start = max(self._start, statistics.median(before))
        self._bar = unit * math.sinh(middle + LEVEL_Z * scale)

    def _before(self) -> list[float]:
        return [value for _, value in list(self._values)[:-NEWEST]]

    def _newest(self) -> list[tuple[int, float]]:
        return list(self._values)[-NEWEST:]


def _variance(rows: float, total: float, squared: float) -> float:
    """Of so many rows' losses, from their sum and that of their squares."""
    return max(0.0, squared / rows - (total / rows) ** 2)


def _of_few(errors: float, rows: float) -> float:
    """Standard errors of a mean of so few rows that are as rare as `errors` of a normal one.

    Student's quantile by Wallace (1959, Ann. Math. Statist. 30), solved for t.
    """
    freedom = rows - 1
    normal = errors * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(normal * normal / freedom))


def _middle(values: list[float]) -> tuple[float, float, float]:
    """Median and deviation on the scale, and the scale's unit: the median size."""
    unit = statistics.median(abs(value) for value in values) or 1.0
    scaled = [_scaled(value, unit) for value in values]
    middle = statistics.median(scaled)
    return middle, max(SMALLEST, MAD * statistics.median(abs(one - middle) for one in scaled)), unit


def _scaled(value: float, unit: float) -> float:
    return math.asinh(value / unit)
