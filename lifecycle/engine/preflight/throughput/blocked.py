"""How much of some work was spent on a core, and how much of it waiting for something else: files, a network, a lock.

Linux tells of each thread how long it ran and how long it waited for a core: what is left, nothing was computed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from trainworthy.lifecycle.processor import waits_for_cores

Given = TypeVar("Given")


class Spent(NamedTuple):
    """Wall seconds of a work, and what of them no thread of this process was computing or waiting for a core."""

    wall: float
    blocked: float

    @property
    def share(self) -> float:
        return self.blocked / self.wall if self.wall > 0 else 0.0


def spent(work: Callable[[], Given]) -> tuple[Given, Spent | None]:
    """What `work` gave, and where its time went; None where the system does not tell.

    A thread that ends meanwhile counts as far as it computed.
    """
    before, began, cpu = waits_for_cores(), time.perf_counter(), time.process_time()
    given = work()
    cpu, wall, after = time.process_time() - cpu, time.perf_counter() - began, waits_for_cores()
    if before is None or after is None:
        return given, None
    queued = sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())
    return given, Spent(wall, max(0.0, wall - cpu - queued))
