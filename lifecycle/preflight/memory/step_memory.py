"""What a training step holds at its peak: followed on fake tensors, with its kernels' own memory from a real one.

Two real steps on a few rows show what each operation's kernel holds for itself, and how that grows with the rows. A
step that cannot be followed on fake tensors is measured by the same two, extrapolated, with a wide interval.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lifecycle.preflight.memory.fake_step import TRACED_PARTS, Timeline, trace_step
from lifecycle.preflight.memory.memory_forecast import MemoryForecast, Source
from lifecycle.preflight.memory.real_step import real_step
from lifecycle.preflight.subject import Subject

# Low and high end over the value, by how it was found. On the networks for choosing it in benchmarks/
# preflight_memory.py, whole batches were met within 0.1 % and lines from 4 rows within 7 %; the margin is wider.
INTERVALS: dict[Source, tuple[float, float]] = {
    "traced": (0.94, 1.3),
    "calibrated": (0.94, 1.12),
    "extrapolated": (0.7, 1.3),
}
# Real steps grow by this until one takes so long (of CPU, so that a busy machine measures the same): small networks are
# run with their whole batch. With few rows oneDNN chooses other kernels: it multiplies bf16 matrices from 4,096
# products on.
FIRST_ROWS, GROWTH, LONG_CPU_SECONDS = 4, 4, 1.0


@dataclass(frozen=True)
class Followed:
    """A followed step, or why it could not be; `trusted` if no value was asked for that decides its shapes."""

    timeline: Timeline | None
    problem: str = ""

    @property
    def trusted(self) -> bool:
        return self.timeline is not None and self.timeline.values_read == 0


def part_rows(subject: Subject) -> int:
    """Rows of the largest part of an update."""
    return math.ceil(subject.plan.batch_size / subject.recipe.accumulate)


def follow(subject: Subject, told: Callable[[BaseException], str]) -> Followed:
    """The declared update on fake tensors: nothing is allocated."""
    recipe = subject.recipe
    try:
        return Followed(
            trace_step(subject, part_rows(subject), accumulate=recipe.accumulate, precision=recipe.precision)
        )
    except Exception as error:
        # Whatever a use case's code raises where a tensor has no values.
        return Followed(None, told(error))


def from_trace(subject: Subject, timeline: Timeline) -> MemoryForecast:
    """The forecast of a followed step alone: before anything is allocated."""
    return _forecast(subject, timeline, "traced", timeline.peak, timeline.kinds)


def with_real_steps(subject: Subject, followed: Followed, long_cpu_seconds: float = LONG_CPU_SECONDS) -> MemoryForecast:
    """The forecast with real steps on few rows. Raises what the model raises on them."""
    rows = part_rows(subject)
    if followed.timeline is None or not followed.trusted:
        parts = min(TRACED_PARTS, subject.recipe.accumulate)
        real = _real_steps(lambda size: real_step(subject, size, parts=parts, updates=2), rows, long_cpu_seconds)
        parameters = sum(parameter.numel() for parameter in subject.build().parameters())
        timeline = Timeline(rows, (), (), parameters=parameters)
        return _forecast(subject, timeline, "extrapolated", _extrapolated(real, rows), {})
    held = _with_kernels(followed.timeline, _real_steps(lambda size: real_step(subject, size), rows, long_cpu_seconds))
    peak = max(followed.timeline.before, *held)
    kinds = followed.timeline.kinds | {"kernels": peak - followed.timeline.peak}
    return _forecast(subject, followed.timeline, "calibrated", peak, kinds)


def _real_steps(run: Callable[[int], Timeline], rows: int, long_cpu_seconds: float) -> tuple[Timeline, ...]:
    """Steps with two numbers of rows, the most that take little time; one where there is but one row."""
    size, found = min(FIRST_ROWS, rows), []
    while True:
        started = time.process_time()
        found.append(run(size))
        if size == rows or time.process_time() - started > long_cpu_seconds:
            break
        size = min(size * GROWTH, rows)
    if len(found) == 1 and size > 1:
        found.insert(0, run(max(1, size // 2)))
    return tuple(found[-2:])


def _with_kernels(fake: Timeline, real: tuple[Timeline, ...]) -> list[int]:
    """What is held within each operation of the followed step.

    An operation is known by its name and how many of that name ran before it. The real steps have one part, so the
    second part of the followed one counts from the beginning again.
    """
    kernels: list[tuple[int, dict[str, list[int]]]] = []
    for step in real:
        inside: dict[str, list[int]] = defaultdict(list)
        for operation, size in zip(step.operations, step.inside, strict=True):
            inside[operation].append(size)
        kernels.append((step.rows, inside))
    seen: Counter[str] = Counter()
    found = []
    for operation, held in zip(fake.operations, fake.held, strict=True):
        points = [
            (rows, inside[operation][seen[operation] % len(inside[operation])])
            for rows, inside in kernels
            if inside[operation]
        ]
        found.append(held + (round(line(points, fake.rows)) if points else 0))
        seen[operation] += 1
    return found


def _extrapolated(real: tuple[Timeline, ...], rows: int) -> int:
    """The peak at `rows`: each operation on its own line where both steps have the same ones, else their peaks."""
    if len({step.operations for step in real}) > 1:
        return round(line([(step.rows, step.peak) for step in real], rows))
    held = [[held + inside for held, inside in zip(step.held, step.inside, strict=True)] for step in real]
    return max(
        round(line(list(zip([step.rows for step in real], at, strict=True)), rows)) for at in zip(*held, strict=True)
    )


def line(points: Sequence[tuple[int, int]], rows: int) -> float:
    """The straight line through two points at `rows`; never below the last one. One point: it grows in proportion."""
    (first, low), (last, high) = points[0], points[-1]
    if rows <= last:
        return high
    if first == last:
        return high * rows / last
    return max(high, high + (high - low) / (last - first) * (rows - last))


def _forecast(
    subject: Subject, timeline: Timeline, source: Source, value: int, kinds: dict[str, int]
) -> MemoryForecast:
    low, high = INTERVALS[source]
    return MemoryForecast(
        rows=timeline.rows, accumulate=subject.recipe.accumulate, precision=subject.recipe.precision, source=source,
        parameter_count=timeline.parameters, kinds=kinds, value=value, low=round(value * low), high=round(value * high),
    )  # fmt: skip
