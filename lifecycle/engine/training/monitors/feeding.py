"""How rows come: the same batch again, too late, or slower and slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import WINDOW, Sample, Signals

# Batches that came again within a pass. Of row numbers one would do; of contents, rows may be alike by nature.
REPEATED = 2
# Samples whose contents are remembered: batches of contents that go in a circle of so many are found.
REMEMBERED = 32


class RepeatedBatches(Base):
    """A batch comes again before its pass is over.

    By the fingerprints of its row numbers, and, in samples, by those of its contents: the numbers may be others where
    the rows are the same. A batch that comes again in the next pass is healthy, and so is one of all rows.
    """

    name = "repeated_batches"
    kept: ClassVar = ("_numbers", "_numbers_again", "_contents", "_contents_again", "_first")

    def __init__(self, steps_per_epoch: int) -> None:
        super().__init__()
        self._steps_per_epoch = steps_per_epoch
        self._numbers: list[int] = []
        self._contents: list[list[int]] = []
        self._numbers_again, self._contents_again, self._first = 0, 0, 0

    def after_backward(self, signals: Signals) -> Finding | None:
        """A finding at the REPEATED-th batch whose rows were among those of the newest."""
        if signals.batch is None:
            return None
        position = signals.step % self._steps_per_epoch
        # Only those of this pass; the newest are enough, since what repeats does so again.
        newest = self._numbers[-min(REMEMBERED, position) :] if position else []
        again = signals.batch in newest
        self._numbers = [*newest, signals.batch]
        if not again:
            return None
        self._numbers_again += 1
        self._first = signals.step if self._numbers_again == 1 else self._first
        return self._finding(signals.step, self._numbers_again, "row numbers", signals.rows)

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding at the REPEATED-th batch whose contents were those of an earlier sample of its pass."""
        if sample.content is None:
            return None
        start = sample.step - sample.step % self._steps_per_epoch
        self._contents = [entry for entry in self._contents if entry[0] >= start][-REMEMBERED:]
        again = any(content == sample.content for _, content in self._contents)
        self._contents.append([sample.step, sample.content])
        if not again:
            return None
        self._contents_again += 1
        self._first = sample.step if self._contents_again == 1 and not self._numbers_again else self._first
        return self._finding(sample.step, self._contents_again, "rows", 0)

    def _finding(self, step: int, count: int, what: str, rows: int) -> Finding | None:
        if count < REPEATED:
            return None
        of = f" of {rows} rows" if rows else ""
        return self.tell(
            step, self._first, symptom_of("repeated_batches"),
            f"{count} batches{of} by update {step} had the same {what} as an earlier one of the same pass of "
            f"{self._steps_per_epoch} updates",
        )  # fmt: skip


# Windows in a row that show that it is no chance.
WAITS, SLOWED = 3, 5
# A spell shorter than this, in seconds, is nobody's concern: on a machine with neighbours updates of 0.5 ms took 5 ms
# for a hundred updates.
LEAST_WAITED, LEAST_SLOW = 3.0, 15.0
# Share of the time that goes in waiting; less is what handing over rows takes where an update is fast.
WAIT_SHARE = 0.5
# Below this nobody cares, in seconds an update: rows in memory are handed over in about 0.1 ms.
LEAST_WAIT = 2e-3
# Times the median of the fastest window. A neighbour on the same cores takes up to a half.
SLOWER = 2.5


def _warming_up(updates: Sequence[Signals]) -> bool:
    """True of a training's first window."""
    return updates[-1].step < 2 * WINDOW - 1


class WaitsForRows(Base):
    """Most of the time goes in waiting for rows."""

    name = "data_wait"
    kept: ClassVar = ("_in_a_row", "_waited")

    def __init__(self) -> None:
        super().__init__()
        self._in_a_row, self._waited = 0, 0.0

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """A finding after WAITS windows. By medians of updates: one slow file is no trouble."""
        if _warming_up(updates):
            return None
        step, seconds, waits = (
            updates[-1].step,
            [update.seconds for update in updates],
            [update.wait_seconds for update in updates],
        )
        share = math.fsum(waits) / max(math.fsum(seconds), 1e-9)
        slow = sorted(waits)[len(waits) // 2] > LEAST_WAIT or math.fsum(waits) / WINDOW > 5 * LEAST_WAIT
        waits_long = share > WAIT_SHARE and slow
        self._in_a_row = self._in_a_row + 1 if waits_long else 0
        self._waited = self._waited + math.fsum(waits) if waits_long else 0.0
        if self._in_a_row < WAITS or self._waited < LEAST_WAITED:
            return None
        return self.tell(
            step, max(0, step - self._in_a_row * WINDOW + 1),
            symptom_of("data_wait"),
            f"{share:.0%} of the last {WINDOW} updates' {math.fsum(seconds):.3g} s",
        )  # fmt: skip


class ThroughputDrop(Base):
    """Updates take longer than they did, all and for each of their rows, and go on doing so.

    Of a policy the rows are steps of its episodes, which get longer as it gets better.
    """

    name = "throughput_drop"
    kept: ClassVar = ("_fastest", "_fastest_row", "_in_a_row", "_slow")

    def __init__(self) -> None:
        super().__init__()
        self._fastest = self._fastest_row = math.inf
        self._in_a_row, self._slow = 0, 0.0

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """A finding after SLOWED windows whose median update is SLOWER than that of the fastest window."""
        if _warming_up(updates):
            return None
        step, seconds = updates[-1].step, [update.seconds for update in updates]
        median = sorted(seconds)[len(seconds) // 2]
        usual = self._fastest = min(self._fastest, median)
        of_rows = sorted(update.seconds / max(1, update.rows) for update in updates)[len(updates) // 2]
        self._fastest_row = min(self._fastest_row, of_rows)
        slower = median > SLOWER * usual and of_rows > SLOWER * self._fastest_row
        self._in_a_row = self._in_a_row + 1 if slower else 0
        self._slow = self._slow + math.fsum(seconds) if slower else 0.0
        if self._in_a_row < SLOWED or self._slow < LEAST_SLOW:
            return None
        return self.tell(
            step, max(0, step - self._in_a_row * WINDOW + 1), symptom_of("throughput_drop"),
            f"{1e3 * median:.3g} ms for the median update, {1e3 * usual:.3g} ms in the fastest window, "
            f"for {self._in_a_row * WINDOW} updates",
        )  # fmt: skip
