"""When a checkpoint is due: every so many updates as declared, else as often as pays by what one costs."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainworthy.lifecycle.cost.checkpoint_interval import FIRST_CHECKPOINT_SECONDS, interval_seconds, longest_seconds
from trainworthy.lifecycle.protocol.jobs import Interruptions


class Schedule:
    """With `every_steps` None the interval follows from the cost of the newest.

    `blocked` seconds are what the training waited for it, `stored` seconds what passed until it was on disk, a durable
    copy included.
    """

    def __init__(
        self, machine: Interruptions, every_steps: int | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._machine, self._every_steps, self.now = machine, every_steps, now
        self._newest_at = self._updated_at = now()
        self._update = 0.0
        self.blocked, self.stored = 0.0, 0.0

    def updated(self) -> None:
        """An update was made."""
        before, self._updated_at = self._updated_at, self.now()
        self._update = self._updated_at - before

    def begun(self) -> None:
        """A checkpoint is written from now on; `blocked` and `stored` are set as soon as they are known."""
        self._newest_at = self.now()

    @property
    def interval_seconds(self) -> float:
        """What lies between two, by the cost of the newest."""
        if not self.stored:
            return FIRST_CHECKPOINT_SECONDS
        return interval_seconds(self.blocked, self.stored, self._machine)

    def due(self, step: int) -> bool:
        """True if one should be written after the update that led to this step."""
        waited = self.now() - self._newest_at
        # On a spot machine, one that would be due within the next update is due now.
        if self._machine.spot and waited + self._update > longest_seconds(self.stored, self._machine):
            return True
        return waited >= self.interval_seconds if self._every_steps is None else step % self._every_steps == 0
