"""What a step uses: wall, CPU and GPU seconds of this process and its ended children, and USD.

Energy that this machine has used, where it has a meter that may be read.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.protocol.records import Cost

# Seconds that this process has waited for others, as the kernel counts its CPU seconds: only ever more.
_queued_seconds = 0.0
# Seconds of all machines that nobody has paid for, since an attempt had but some of them: only ever more.
_spared_seconds = 0.0
# CPU seconds of ended workers that are another process's children, here or on another machine.
_workers_seconds = 0.0


def count_worker(cpu_seconds: float) -> None:
    """A worker of this process's run has ended whose parent is another process."""
    global _workers_seconds
    _workers_seconds += cpu_seconds


def count_queued(seconds: float) -> None:
    """A worker of this process's run has waited so long for a machine, which nobody pays for."""
    global _queued_seconds
    _queued_seconds += seconds


def count_spared(seconds: float) -> None:
    """An attempt had some of the machines: so many seconds of all of them were not rented for it."""
    global _spared_seconds
    _spared_seconds += seconds


@contextlib.contextmanager
def queued() -> Iterator[None]:
    """Around a wait for a run that does the same work: that run pays for these seconds, not this one."""
    global _queued_seconds
    started = time.perf_counter()
    try:
        yield
    finally:
        _queued_seconds += time.perf_counter() - started


class Meter:
    """Counts from its making on. CPU seconds are this process's, its waited-for children's and its workers'."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._queued = time.perf_counter(), _cpu_seconds(), _queued_seconds
        self._spared = _spared_seconds

    @property
    def wall_seconds(self) -> float:
        """Elapsed seconds without those that were waited for others."""
        return time.perf_counter() - self._wall - self.queue_seconds

    @property
    def queue_seconds(self) -> float:
        """Seconds that were waited for others."""
        return _queued_seconds - self._queued

    @property
    def spared_seconds(self) -> float:
        """Seconds of all machines that were not rented, since attempts had but some of them."""
        return _spared_seconds - self._spared

    def cost(self, sku: Sku, gpus: int = 0, gpu_seconds: float = 0.0) -> Cost:
        """The cost so far; USD is wall time at the SKU's price, since a machine is rented by the hour.

        What attempts did without some of the machines is taken off the USD, and off nothing else.

        `gpu_seconds` is how long a GPU was used, on each of `gpus`; a GPU found by device auto counts as one.
        """
        wall = self.wall_seconds
        return Cost(
            gpu_seconds=gpu_seconds * max(1, gpus),
            cpu_seconds=_cpu_seconds() - self._cpu,
            wall_seconds=wall,
            usd=(wall - self.spared_seconds) / 3600 * sku.usd_per_hour,
            queue_seconds=self.queue_seconds,
        )


def _cpu_seconds() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return _workers_seconds + sum(usage.ru_utime + usage.ru_stime for usage in usages)


# Intel's and AMD's running average power limit; packages only, since their parts are counted within them.
METERS = Path("/sys/class/powercap")


def joules(meters: Path = METERS) -> float | None:
    """Joules since some moment in the past, of all processor packages; None where nothing can be read.

    A counter starts again after hours; a difference across that moment is negative and no measurement.
    """
    packages = [path for path in sorted(meters.glob("*-rapl:*")) if path.name.count(":") == 1]
    try:
        readings = [int((path / "energy_uj").read_text()) for path in packages]
    except (OSError, ValueError):
        # Only root may read it on many machines.
        return None
    return sum(readings) / 1e6 if readings else None
