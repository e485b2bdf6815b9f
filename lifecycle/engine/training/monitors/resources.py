"""Memory that grows, a GPU that waits, and processes whose weights have gone apart."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import symptom_of
from trainworthy.lifecycle.protocol.signals import Sample, Signals

# Samples that a growth is judged by: the newer half of all, at least so many.
FEWEST_SAMPLES = 8
# Of the steps between those samples, the share that go up. What an allocator adds while it warms up comes in few jumps.
RISING = 0.7
# The newer half of them has to grow this share as fast as the older one: what levels off is healthy.
GOES_ON = 0.6
# Of the limit, what has to be held before a growth is critical: a cache that fills up in a first pass grows as well.
NEAR_LIMIT = 0.5
# Bytes that the growth comes to by the end of the run, below which it is told to nobody.
NOTABLE_BYTES, NOTABLE_SHARE = 64 * 2**20, 0.5


class MemoryGrowth(Base):
    """Memory grows steadily, so that it would not last until the end of the run.

    `limit_bytes` is what there is; a growth by half until the end is told as a warning, and once half of the limit is
    held and the rest would not last, as critical.
    """

    name = "memory_growth"
    kept: ClassVar = ("_steps", "_bytes")

    def __init__(self, planned_steps: int, limit_bytes: float | None = None) -> None:
        super().__init__()
        self._planned, self._limit = planned_steps, limit_bytes
        self._steps: list[int] = []
        self._bytes: list[float] = []

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding once the newer half of the samples grows, and goes on to."""
        self._steps.append(sample.step)
        self._bytes.append(sample.memory_bytes)
        if len(self._steps) > 64:
            # As many samples in a run of millions as in a short one.
            self._steps, self._bytes = self._steps[1::2], self._bytes[1::2]
        count = max(FEWEST_SAMPLES, len(self._steps) // 2)
        # The first two are the allocator's warm-up in any case.
        if len(self._steps) < FEWEST_SAMPLES + 2 or not _grows(self._bytes[-count:]):
            return None
        steps, held = self._steps[-count:], self._bytes[-count:]
        slope = (held[-1] - held[0]) / (steps[-1] - steps[0])
        at_end = held[-1] + slope * max(0, self._planned - steps[-1])
        too_much = self._limit is not None and at_end > self._limit
        notable = at_end - held[0] > max(NOTABLE_BYTES, NOTABLE_SHARE * held[0])
        if not (too_much or notable):
            return None
        critical = too_much and held[-1] > NEAR_LIMIT * (self._limit or 0)
        of = f" of {self._limit / 2**30:.3g} GiB that there are" if self._limit else ""
        return self.tell(
            sample.step, steps[0], symptom_of("memory_growth"),
            f"{slope / 2**20:.3g} MiB an update since update {steps[0]}: {held[-1] / 2**30:.3g} GiB now, "
            f"{at_end / 2**30:.3g} GiB at the end of the run{of}",
            milder=not critical, again_if_critical=True,
        )  # fmt: skip


def _grows(held: list[float]) -> bool:
    changes = [after - before for before, after in pairwise(held)]
    middle = len(held) // 2
    older, newer = (held[middle] - held[0]) / middle, (held[-1] - held[middle]) / (len(held) - 1 - middle)
    return sum(change > 0 for change in changes) >= RISING * len(changes) and older > 0 and newer > GOES_ON * older


# Busy less than this, in IDLE samples in a row: a GPU that trains is busy for most of the time.
LITTLE_BUSY, IDLE = 0.3, 5


class GpuIdle(Base):
    """The GPU does nothing for most of the time, by NVML. Never ran: there was no GPU to try it on."""

    name = "gpu_idle"
    kept: ClassVar = ("_samples", "_since")

    def __init__(self) -> None:
        super().__init__()
        self._samples, self._since = 0, 0

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding after IDLE samples; none where NVML is not there."""
        if sample.gpu_busy is None or sample.gpu_busy >= LITTLE_BUSY:
            self._samples = 0
            return None
        self._samples += 1
        self._since = sample.step if self._samples == 1 else self._since
        if self._samples < IDLE:
            return None
        return self.tell(
            sample.step, self._since, symptom_of("gpu_idle"),
            f"busy for {sample.gpu_busy:.0%} of the time in the newest of {IDLE} samples, each below {LITTLE_BUSY:.0%}",
        )  # fmt: skip


class ReplicasApart(Base):
    """Processes that train the same model have other weights than each other."""

    name = "replicas_apart"

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding at once: replicas are equal to the last bit, or they are not replicas."""
        differing = [
            name for n, name in enumerate(sample.names) if len({checksums[n] for checksums in sample.replicas}) > 1
        ]  # fmt: skip
        if not differing:
            return None
        return self.tell(
            sample.step, sample.step, symptom_of("replicas_apart"),
            f"{len(differing)} of {len(sample.names)} parameters differ between {len(sample.replicas)} processes: "
            f"{named(differing)}",
            tuple(differing),
        )  # fmt: skip
