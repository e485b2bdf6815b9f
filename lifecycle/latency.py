"""How long a model takes to answer one row, whatever else the machine does meanwhile.

By the clock alone a model that needs 11 ms took 24 ms beside three busy processes and 69 ms beside eight
(docs/benchmarks.md). Linux tells of each thread how long it was ready and waited for a core that other work had: that
is not the model's. What the model itself waits for, a file, a lock, a sleep, stays in the figure; processor time alone
would leave that out as well.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trainworthy.lifecycle.processor import usable_cores, waits_for_cores
from trainworthy.lifecycle.protocol.latency import BUSY_SHARE, Latency

CALLS, WARM_UP = 50, 5
# What other work made worse is measured again, and a model that is too slow as often.
ROUNDS = 3
# Beside other work the same calls take more processor time too, since caches are shared: 1.26 times beside eight
# processes on two cores. A wait of this share of the wall time says that there was other work.
SLOWED = 1.5


class Clocks(NamedTuple):
    """Seconds by the wall, of this thread's and of the process' processor time, and of each thread's waits for a core.

    `waits` gives None where the system does not tell; `thread` names the one that answers. `cores` are this process'.
    """

    wall: Callable[[], float] = time.perf_counter
    thread_cpu: Callable[[], float] = time.thread_time
    process_cpu: Callable[[], float] = time.process_time
    waits: Callable[[], Mapping[str, float] | None] = waits_for_cores
    thread: str = ""
    load: Callable[[], tuple[float, float, float]] = os.getloadavg
    cores: int = 0


def measure_latency(
    answer: Callable[[int], object], limit_ms: float | None = None, clocks: Clocks | None = None
) -> Latency:
    """Time `answer(call)` CALLS times after a warm-up; again, ROUNDS times at most, until `limit_ms` is kept."""
    clocks = clocks or clocks_here()
    for call in range(WARM_UP):
        answer(call)
    rounds = [_round(answer, clocks)]
    while limit_ms is not None and rounds[-1]["most_ms"] > limit_ms and len(rounds) < ROUNDS:
        rounds.append(_round(answer, clocks))
    # Other work makes an answer slower and never faster.
    best = {name: min(figures[name] for figures in rounds) for name in rounds[0]}
    return Latency(**best, rounds=len(rounds), load=clocks.load()[0], cores=clocks.cores)


def clocks_here() -> Clocks:
    """Those of the thread that asks."""
    return Clocks(thread=str(threading.get_native_id()), cores=usable_cores())


def _round(answer: Callable[[int], object], clocks: Clocks) -> dict[str, float]:
    calls = [timed_call(answer, call, clocks) for call in range(CALLS)]
    return {name: statistics.median(call[name] for call in calls) * 1000 for name in calls[0]}


def timed_call(answer: Callable[[int], object], call: int, clocks: Clocks) -> dict[str, float]:
    """Seconds of one call, by the names that Latency has.

    Waits are read within `whole`, so that none is taken off that is not in it.
    """
    first, before = clocks.wall(), clocks.waits()
    cpu, own, began = clocks.process_cpu(), clocks.thread_cpu(), clocks.wall()
    answer(call)
    wall, own, cpu = clocks.wall() - began, clocks.thread_cpu() - own, clocks.process_cpu() - cpu
    after, whole = clocks.waits(), clocks.wall() - first
    if before is None or after is None:
        return {"wall_ms": wall, "cpu_ms": cpu, "least_ms": min(own, wall) / SLOWED, "most_ms": wall}
    waited = {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}
    # This thread's own waits are in the wall time one for one; those of others may be at once with its own work.
    most = min(wall, whole - waited.get(clocks.thread, 0.0))
    # A wait for a core that a thread of its own had is the model's: so much work takes as long on all cores at least.
    most = max(most, min(wall, cpu / clocks.cores))
    least = min(most, max(own, wall - sum(waited.values())))
    busy = sum(waited.values()) > BUSY_SHARE * wall
    return {"wall_ms": wall, "cpu_ms": cpu, "least_ms": least / SLOWED if busy else least, "most_ms": most}
