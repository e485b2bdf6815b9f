"""How much of some work was spent on a core, and how much of it waiting for something else: files, a network, a lock.

Linux tells of each thread how long it ran and how long it waited for a core: what is left, nothing was computed in.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

Given = TypeVar("Given")

TASKS = Path("/proc/self/task")


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
    before, began, cpu = _scheduled(), time.perf_counter(), time.process_time()
    given = work()
    cpu, wall, after = time.process_time() - cpu, time.perf_counter() - began, _scheduled()
    if before is None or after is None:
        return given, None
    queued = sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())
    return given, Spent(wall, max(0.0, wall - cpu - queued))


def _scheduled() -> dict[str, float] | None:
    """Seconds that each thread of this process has waited for a core; None where the system does not tell."""
    found = {}
    try:
        for task in TASKS.iterdir():
            # One may end while it is asked.
            with contextlib.suppress(FileNotFoundError):
                found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
    return found or None
