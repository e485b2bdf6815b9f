"""Where a stage's wall seconds go, over all its attempts.

The totals lie in a small file in the worker's folder, written a few times a second, with the totals at the last
checkpoints beside them. After a kill, what was spent since the checkpoint that the stage goes on from is known by it:
that is the work that has to be done again. None of it is in a checkpoint, whose bytes are thereby no matter of time.
"""

from __future__ import annotations

import contextlib
import os
import time
from array import array
from collections.abc import Mapping
from pathlib import Path

from trainworthy.lifecycle.protocol.training_figures import StageSeconds

# Columns: the step reached, seconds by part in the order of StageSeconds, steps done again.
STEP, START, QUEUE, DATA, COMPUTE, CHECKPOINT, VALIDATION, EXPORT, SKIPPED, REPLAYED, REPLAYED_STEPS = range(11)
_PARTS = ("start", "queue", "data", "compute", "checkpoint", "validation", "export", "skipped", "replayed")
_WIDTH = 11
# Rows: the totals, then one a checkpoint: more than are kept, since a damaged one is passed over.
_MARKS = 4
# What was spent since the last write is missing after a kill.
WRITE_SECONDS = 0.25


class Clock:
    """Adds the seconds since the last lap to a part. Without a file it counts this process alone."""

    def __init__(self) -> None:
        self._totals = array("d", bytes(8 * _WIDTH))
        self._marks = [array("d", bytes(8 * _WIDTH)) for _ in range(_MARKS)]
        self._before = array("d", self._totals)
        self._file: int | None = None
        self._last = self._written = time.perf_counter()

    @classmethod
    def open(cls, path: Path, spent: Mapping[int, float]) -> Clock:
        """The clock that goes on where the file's ended; `spent` seconds of this attempt count from the start on.

        A file that cannot be read or written costs the figures of earlier attempts, never the training.
        """
        clock = cls()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            clock._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            clock._read(os.pread(clock._file, 8 * _WIDTH * (1 + _MARKS), 0))
        for part, seconds in spent.items():
            clock._totals[part] += seconds
        return clock

    def lap(self, part: int) -> None:
        """The seconds since the last lap went to `part`."""
        now = time.perf_counter()
        self._totals[part] += now - self._last
        self._last = now

    def step_done(self, step: int) -> None:
        """What came after the update was validation; `step` steps are done."""
        self.lap(VALIDATION)
        self._totals[STEP] = step
        if self._last - self._written > WRITE_SECONDS:
            self._write()

    def checkpoint_saved(self, step: int) -> None:
        """The seconds since the last lap went to a checkpoint of `step`, from which a later attempt may go on."""
        self.lap(CHECKPOINT)
        self._totals[STEP] = step
        # Saved again, a step has one mark: the later one holds what was waited for its write.
        mark = min(self._marks, key=lambda mark: (mark[STEP] != step, mark[STEP]))
        mark[:] = self._totals
        self._write()

    def resume(self, step: int) -> None:
        """The stage goes on from `step`: what earlier attempts spent after it is replayed."""
        saved = self._at(step)
        lost = array("d", (before - at for before, at in zip(self._before, saved, strict=True)))
        for part in range(START, REPLAYED):
            self._totals[part] -= lost[part]
            self._totals[REPLAYED] += lost[part]
        if self._before[STEP] > step:
            self._totals[REPLAYED_STEPS] += self._before[STEP] - step
        self._totals[STEP] = step
        for mark in self._marks:
            if mark[STEP] > step:
                mark[:] = array("d", bytes(8 * _WIDTH))
        self._write()

    def go_back(self, step: int) -> None:
        """The stage goes on from the checkpoint of `step` within this attempt."""
        self._before = array("d", self._totals)
        self.resume(step)

    def spent(self, part: int) -> float:
        """Seconds of a part so far."""
        return self._totals[part]

    def _at(self, step: int) -> array[float]:
        """The totals when the checkpoint of `step` was saved, as far as they are known."""
        exact = [mark for mark in self._marks if mark[STEP] == step]
        if exact:
            return exact[0]
        # Ended while it was saved: whatever is known lies before it.
        if self._before[STEP] <= step:
            return self._before
        earlier = [mark for mark in self._marks if mark[STEP] < step]
        return max(earlier, key=lambda mark: mark[STEP], default=array("d", bytes(8 * _WIDTH)))

    def seconds(self) -> StageSeconds:
        """The totals so far."""
        parts = dict(zip(_PARTS, self._totals[START : REPLAYED + 1], strict=True))
        return StageSeconds(**parts, replayed_steps=round(self._totals[REPLAYED_STEPS]))

    def close(self) -> None:
        """Write the totals, those since the last lap included, and let go of the file."""
        # Whatever they were of: after an attempt that broke, all since its checkpoint is replayed.
        self.lap(EXPORT)
        self._write()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self, content: bytes) -> None:
        if len(content) != 8 * _WIDTH * (1 + _MARKS):
            return
        numbers = array("d", content)
        if not all(0 <= value < float("inf") for value in numbers):
            return
        rows = [numbers[start : start + _WIDTH] for start in range(0, len(numbers), _WIDTH)]
        self._totals, self._before, self._marks = rows[0], array("d", rows[0]), rows[1:]

    def _write(self) -> None:
        self._written = self._last
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, b"".join(row.tobytes() for row in (self._totals, *self._marks)), 0)
