"""What a step uses: wall, CPU and GPU seconds of this process and its ended children, and USD."""

from __future__ import annotations

import resource
import time

from lifecycle.cost.prices import Sku
from lifecycle.records import Cost


class Meter:
    """Counts from its making on. CPU seconds are this process's and its waited-for children's."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()

    def cost(self, sku: Sku, gpus: int = 0, gpu_seconds: float = 0.0) -> Cost:
        """The cost so far; USD is wall time at the SKU's price, since a machine is rented by the hour.

        `gpu_seconds` is how long a GPU was used, on each of `gpus`; a GPU found by device auto counts as one.
        """
        wall = time.perf_counter() - self._wall
        return Cost(
            gpu_seconds=gpu_seconds * max(1, gpus),
            cpu_seconds=_cpu_seconds() - self._cpu,
            wall_seconds=wall,
            usd=wall / 3600 * sku.usd_per_hour,
        )


def _cpu_seconds() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
