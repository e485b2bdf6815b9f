"""What the loss does over many updates: it does not fall, rises above where it was, or falls in training alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.ranks import FALSE_ALARMS, UPDATES, bar
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.records import CurvePoint
from trainworthy.lifecycle.protocol.signals import WINDOW, Sample, Signals


@dataclass(frozen=True)
class Window:
    """Mean loss of updates `first` to `last`, its standard error, and the mean learning rate.

    `rows` are those of an update: the fewest, the median and the most.
    """

    first: int
    last: int
    mean: float
    error: float
    rate: float
    rows: tuple[int, int, int]

    def is_as_large_as(self, fewest: float, most: float) -> bool:
        """Whether its typical update has as many rows as some of those, so that their losses may be drawn alike.

        A sum over an episode that has become ten times as long is no loss of the same distribution.
        """
        return fewest <= self.rows[1] <= most


def window_of(updates: Sequence[Signals]) -> Window:
    """Of updates with finite losses."""
    losses, sizes = [update.loss for update in updates], sorted(update.rows for update in updates)
    rows = sum(sizes)
    mean = math.fsum(losses) / len(updates)
    between = math.fsum((loss - mean) ** 2 for loss in losses) / (len(updates) - 1)
    # The larger of what rows and what updates say: batches are neither independent nor alike.
    within = (
        max(0.0, math.fsum((update.squared - update.loss * update.loss) * update.rows for update in updates))
        / rows
        / rows
    )
    error = math.sqrt(max(between / len(updates), within))
    rate = math.fsum(update.learning_rate for update in updates) / len(updates)
    of_rows = (sizes[0], sizes[len(sizes) // 2], sizes[-1])
    return Window(updates[0].step, updates[-1].step, mean, error, rate, of_rows)


class Level(NamedTuple):
    """A mean loss of some rows, in the loss's unit, and its standard error."""

    mean: float
    error: float


def _unknown() -> Level | None:
    """Nothing adds noise to the losses that a training shows, or nobody can say what they are without it."""
    return None


# Share of the planned updates after which a training that has not moved is told, and how many at least.
FLAT_AFTER, FLAT_STEPS = 0.25, 60
# Progress below this share of the loss is none. A training is told only if more is out of the question: where the noise
# is so large that a progress of this size could hide in it, nothing can be said.
NO_PROGRESS = 0.02


class Plateau(Base):
    """The loss has not fallen since the start, or never below that of the best constant answer.

    A warning: long plateaus before a drop are healthy. `prior_loss` is the constant answer's, where it is known.
    `without_dropout` says what the loss is without the noise that training adds, None if it adds none: it is asked
    here, of the weights of the start, and before anything is told. Where that loss has made progress, nothing is.
    """

    name = "plateau"
    kept: ClassVar = ("_start", "_sums", "_asks_from", "_sizes")

    def __init__(
        self,
        planned_steps: int,
        prior_loss: float | None = None,
        without_dropout: Callable[[], Level | None] = _unknown,
    ) -> None:
        super().__init__()
        self._without_dropout, self._at_start = without_dropout, without_dropout()
        self._after = max(FLAT_STEPS, FLAT_AFTER * planned_steps)
        self._prior = prior_loss
        self._start: list[float] = []
        # Rows of an update in the first window, at least and at most.
        self._sizes: list[float] = [0.0, math.inf]
        # Of windows of the later half: count, sum, sum of squared errors.
        self._sums = [0.0, 0.0, 0.0]
        # What found progress is asked again after as many updates more: a forward pass each time.
        self._asks_from = 0

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """A finding once the later half of the updates so far is no better than the first window."""
        closed = window_of(updates)
        if not self._start:
            self._start, self._sizes = [closed.mean, closed.error], [float(closed.rows[0]), float(closed.rows[-1])]
        elif closed.last >= self._after / 2:
            count, total, squares = self._sums
            self._sums = [count + 1, total + closed.mean, squares + closed.error**2]
        if closed.last < max(self._after, self._asks_from) or not self._sums[0] or self._told:
            return None
        if not closed.is_as_large_as(*self._sizes):
            return None
        count, total, squares = self._sums
        mean, error = total / count, math.sqrt(squares) / count
        return self._since_start(closed, mean, error) or self._above_prior(closed, mean, error)

    def _since_start(self, closed: Window, mean: float, error: float) -> Finding | None:
        start, start_error = self._start
        possible = start - mean + 2 * math.hypot(error, start_error)
        if possible > NO_PROGRESS * abs(start) or (now := self._as_little(self._at_start, closed.last)) is None:
            return None
        return self.tell(
            closed.last, 0, symptom_of("plateau"),
            f"{start:.4g} in the first window and {mean:.4g} by update {closed.last}"
            f"{f', with its noise at most {possible:.2g} less' if possible > 0 else ''}{now}",
        )  # fmt: skip

    def _above_prior(self, closed: Window, mean: float, error: float) -> Finding | None:
        if self._prior is None or self._prior - mean + 2 * error > NO_PROGRESS * abs(self._prior):
            return None
        # What started far above is on its way.
        if mean - closed.mean > 2 * math.hypot(error, closed.error):
            return None
        if (now := self._as_little(Level(self._prior, 0.0), closed.last)) is None:
            return None
        return self.tell(
            closed.last, 0, symptom_of("plateau", "prior"),
            f"{mean:.4g} by update {closed.last}, {self._prior:.4g} for the best answer that looks at no input{now}",
        )  # fmt: skip

    def _as_little(self, before: Level | None, step: int) -> str | None:
        """What the loss without dropout says beside it, "" if there is none; None where it has made progress since."""
        now = self._without_dropout()
        if now is None or before is None:
            return ""
        if before.mean - now.mean + 2 * math.hypot(now.error, before.error) > NO_PROGRESS * abs(before.mean):
            self._asks_from = 2 * step
            return None
        return f"; without dropout {now.mean:.4g} on some training rows"


# So many newest windows are held against the best one: so many of their losses must lie above those of the best. How
# rare that must be follows from the rate, since each window may be the best and each may be the newest.
RISEN, MOST = 3, 54
CHANCE = FALSE_ALARMS / ((UPDATES / WINDOW) ** 2 / 2)
# Of what had been gained since the start, this much has to be lost again.
LOST = 0.5
# A rate above that of the best window explains a rise, where the training had borne it before: cycles and restarts.
# Many times all rates that it had learned at explain nothing: that is a schedule's mistake.
HIGHER_RATE, UNHEARD_OF = 1.2, 10.0


class RiseAboveBest(Base):
    """The newest windows' losses rank above those of the best one by more than chance brings (ranks.py).

    A warning: the loss of an adversary, of harder rows, of a rate that goes up and down rises in healthy trainings.
    """

    name = "rise_above_best"
    kept: ClassVar = ("_start", "_lowest", "_of_best", "_newest", "_onset", "_borne", "_sizes")

    def __init__(self) -> None:
        super().__init__()
        self._start: float | None = None
        # Rows of an update in the best window, at least and at most.
        self._sizes: list[float] = [0.0, math.inf]
        # Mean loss, mean rate and last update of the best window.
        self._lowest: list[float] = []
        self._of_best: list[float] = []
        # Those of the windows since that no rate explains.
        self._newest: list[float] = []
        self._onset = 0
        # The largest rate of a window up to the best one.
        self._borne = 0.0

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """A finding once RISEN windows in a row lie above the best one."""
        closed, losses = window_of(updates), [update.loss for update in updates]
        if self._start is None:
            self._start = closed.mean
        if not self._lowest or closed.mean < self._lowest[0]:
            self._lowest, self._of_best, self._newest = [closed.mean, closed.rate, closed.last], losses, []
            self._borne, self._sizes = max(self._borne, closed.rate), [float(closed.rows[0]), float(closed.rows[-1])]
            return None
        best, rate, at = self._lowest
        meant = HIGHER_RATE * rate < closed.rate <= UNHEARD_OF * self._borne and closed.mean < self._start
        alike = closed.is_as_large_as(*self._sizes)
        if meant or not alike or closed.mean - best <= LOST * (self._start - best):
            self._newest = []
            return None
        self._onset = self._onset if self._newest else closed.first
        self._newest = [*self._newest, *losses][-RISEN * WINDOW :]
        lowest = bar(self._of_best, RISEN * WINDOW, MOST, CHANCE)
        if sum(loss > lowest for loss in self._newest) < MOST:
            return None
        return self.tell(
            closed.last, self._onset, symptom_of("rise_above_best"),
            f"{closed.mean:.4g} after {best:.4g} at update {int(at)}: the losses of {RISEN} windows lie above "
            f"{lowest:.4g}, as by chance in fewer than {FALSE_ALARMS:g} of trainings",
        )  # fmt: skip


# The reserve's loss above its best, in standard errors, for OVERFITTED windows in a row, while that of training falls.
GAP_ERRORS, OVERFITTED = 2.0, 3


class Overfitting(Base):
    """The loss of rows that are not trained on rises while that of training falls.

    Looks at the windows of the reserve (watching/progressive.py), or of any rows that are scored in evaluation mode in
    later passes, given by `after_points`.
    """

    name = "overfitting"
    kept: ClassVar = ("_best", "_training", "_risen", "_onset")

    def __init__(self) -> None:
        super().__init__()
        self._best: list[float] = []
        self._training: list[float] = []
        self._risen, self._onset = 0, 0

    def after_points(self, points: Sequence[CurvePoint]) -> Finding | None:
        """A finding after OVERFITTED windows; `points` are those that one window closed."""
        training = next((p for p in points if p.mode == "training" and p.slice is None), None)
        reserve = next((p for p in points if p.scored == "reserve" and p.slice is None), None)
        if training is None or reserve is None:
            return None
        if not self._best or reserve.loss < self._best[0]:
            self._best, self._risen = [reserve.loss, reserve.standard_error, float(reserve.step)], 0
            self._training = [training.loss, training.standard_error]
            return None
        best, error, at = self._best
        # The same rows each time: their standard error is that of how they differ from each other, not of the rise.
        above = reserve.loss - best > GAP_ERRORS * max(error, reserve.standard_error)
        fell = self._training[0] - training.loss > GAP_ERRORS * math.hypot(self._training[1], training.standard_error)
        self._risen = self._risen + 1 if above and fell else 0
        self._onset = reserve.step if self._risen == 1 else self._onset
        if self._risen < OVERFITTED:
            return None
        return self.tell(
            reserve.step, self._onset,
            symptom_of("overfitting"),
            f"reserve {best:.4g} at update {int(at)} and {reserve.loss:.4g} now; training {self._training[0]:.4g} and "
            f"{training.loss:.4g}",
        )  # fmt: skip


# Of the largest spread so far, relative to the outputs' size and as it is: answers about a large mean are alike by the
# one, answers that began too large by the other. On 85 healthy odd trainings the larger of the two was at least 0.5 in
# two samples in a row. Answers to targets that hardly vary come that close before they are learned: at the first bar it
# is a warning, and only of losses whose best constant answer is not known, as one without labels.
COLLAPSED, NOTHING_LEFT = 0.05, 3e-3
# Of the best constant answer's loss: what is below has learned something.
WELL_BELOW = 0.8
# Samples in a row: of outputs that were spread once, and of outputs that never were.
AFTER_SPREAD, FROM_START = 2, 3
NO_SPREAD = 1e-6


class ConstantPredictions(Base):
    """The outputs are the same for every row, though the targets are not.

    `prior_loss` is the loss of the best constant answer, where it is known.
    """

    name = "constant_predictions"
    kept: ClassVar = ("_largest", "_largest_deviation", "_samples", "_since")

    def __init__(self, prior_loss: float | None = None) -> None:
        super().__init__()
        self._prior = prior_loss
        self._largest, self._largest_deviation, self._samples, self._since = 0.0, 0.0, 0, 0

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding once the outputs were alike in some samples in a row."""
        # NaN: of one row, or not finite.
        if not sample.spread >= 0:
            return None
        self._largest = max(self._largest, sample.spread)
        self._largest_deviation = max(self._largest_deviation, sample.deviation)
        once = self._largest > NO_SPREAD
        # What is left of the spread: of answers that never had one, nothing.
        left = max(sample.spread / self._largest, sample.deviation / self._largest_deviation) if once else 0.0
        learned = self._prior is not None and self._prior - update.loss > (1 - WELL_BELOW) * abs(self._prior)
        if left > (COLLAPSED if self._prior is None else NOTHING_LEFT) or learned:
            self._samples = 0
            return None
        self._samples += 1
        self._since = sample.step if self._samples == 1 else self._since
        # Answers that were never apart may be what is asked for; not where their losses differ, as the targets then do.
        losses_differ = update.squared - update.loss * update.loss > 1e-6 * update.squared
        if self._samples < (AFTER_SPREAD if once else FROM_START) or not (once or losses_differ):
            return None
        return self.tell(
            sample.step, self._since,
            symptom_of("constant_predictions"),
            f"the outputs' spread over the rows is {sample.spread:.2g} of their size, "
            f"{self._largest:.2g} at most before",
            milder=left > NOTHING_LEFT, again_if_critical=True,
        )  # fmt: skip
