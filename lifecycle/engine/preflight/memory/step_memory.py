"""What a training step holds at its peak: followed on fake tensors, with its kernels' own memory from real ones.

Two real steps on a few rows show what each operation's kernel holds for itself; what may be the peak is run again
alone, as large as in the whole batch (`replay`). Operations that keep more than fake tensors show (`unfollowed`) are
corrected, with a wide interval. A step that cannot be followed is measured by two real ones, extrapolated.

What operations keep after them that fake tensors do not show.

oneDNN's LSTM returns a workspace, which is empty on fake tensors: a forecast without it was 65 % short. So the same
update is followed and run, both on the same few rows, and what is held after each operation is compared.

The straight line by which bytes on few rows are told at many.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainworthy.lifecycle.engine.preflight.memory.call import Call, call_at
from trainworthy.lifecycle.engine.preflight.memory.fake_step import (
    TRACED_PARTS,
    Timeline,
    largest_bytes,
    scoring_bytes,
    trace_step,
    trained_bytes,
)
from trainworthy.lifecycle.engine.preflight.memory.real_step import real_step, replay
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.protocol.forecasts import MemoryForecast, Source

# Low and high end over the value, by how it was found; docs/decisions/0025.
INTERVALS: dict[Source, tuple[float, float]] = {
    "traced": (0.94, 1.3),
    "calibrated": (0.95, 1.08),
    "corrected": (0.7, 1.3),
    "extrapolated": (0.7, 1.3),
}
# Rows of the two real steps. Not one: batch norm refuses to train on it.
FEW_ROWS = (2, 4)
# What operations keep unseen is left out if the peak grows by no more than this share.
UNFOLLOWED = 0.01
# What of the whole batch is run again, one operation at a time.
REPLAY_CPU_SECONDS = 2.0
# Of a block's weights: they are gathered, copied out, and their gradients collected for the exchange.
OF_A_BLOCK = 4
# Steps that cannot be followed grow by this until one takes so long (of CPU, so that a busy machine measures the same).
GROWTH, LONG_CPU_SECONDS = 4, 1.0


class KernelMemory(NamedTuple):
    """An operation in a real step: what its kernel held, its call, and what was held since it was looked at."""

    rows: int
    inside: int
    call: Call | None
    more: int


@dataclass(frozen=True)
class Followed:
    """A followed step, or why it could not be; `trusted` if no value was asked for that decides its shapes.

    `few` are first updates on FEW_ROWS a part, to compare real ones with; none if they could not be followed.
    `scoring` is the peak while the validation split is scored; 0 if there is none, or it could not be followed.
    """

    timeline: Timeline | None
    problem: str = ""
    few: tuple[Timeline, ...] = ()
    scoring: int = 0

    @property
    def trusted(self) -> bool:
        return self.timeline is not None and self.timeline.values_read == 0


def share_rows(subject: Subject) -> int:
    """Rows of the largest share of an update that a process has."""
    return math.ceil(subject.plan.batch_size / subject.processes)


def part_rows(subject: Subject) -> int:
    """Rows of the largest part of an update's share."""
    return math.ceil(share_rows(subject) / subject.recipe.accumulate)


def bucket_bytes(subject: Subject, timeline: Timeline) -> int:
    """What DistributedDataParallel exchanges gradients in: it holds each once more from the first update on."""
    return timeline.trained if subject.processes > 1 and subject.sharding == "none" else 0


def block_bytes(timeline: Timeline) -> int:
    """What a process holds of the largest block of a sharded network: weights and gradients, and what they come in."""
    return OF_A_BLOCK * timeline.largest


def follow(subject: Subject, describe: Callable[[BaseException], str]) -> Followed:
    """The declared update on fake tensors: nothing is allocated."""
    rows, accumulate, precision = part_rows(subject), subject.recipe.accumulate, subject.recipe.precision
    timeline, scoring = None, 0
    try:
        timeline = trace_step(subject, rows, accumulate=accumulate, precision=precision)
        with contextlib.suppress(Exception):
            # One that trains and cannot be evaluated is told by one_batch.
            scoring = scoring_bytes(subject, timeline)
        few = (trace_step(subject, size, accumulate=accumulate, precision=precision, updates=1) for size in _few(rows))
        return Followed(timeline, few=tuple(few), scoring=scoring)
    except Exception as error:
        # Whatever a use case's code raises where a tensor has no values, or on so few rows.
        return Followed(timeline, describe(error), scoring=scoring)


def from_trace(subject: Subject, followed: Followed, timeline: Timeline) -> MemoryForecast:
    """The forecast of a followed step alone: before anything is allocated."""
    return _forecast(subject, timeline, "traced", timeline.peak, timeline.kinds, followed.scoring)


def with_real_steps(subject: Subject, followed: Followed) -> MemoryForecast:
    """The forecast with real steps on few rows. Raises what the model raises on them."""
    rows = part_rows(subject)
    if followed.timeline is None or not followed.trusted:
        model = subject.build()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        timeline = Timeline(
            rows, (), (), parameters=parameters, trained=trained_bytes(model), largest=largest_bytes(model)
        )
        del model
        return _forecast(subject, timeline, "extrapolated", _extrapolated(_growing(subject, rows), rows), {}, 0)
    # As many parts as are followed, so that operations are found again by their number.
    few = tuple(real_step(subject, size, parts=_parts(subject)) for size in _few(rows))
    timeline, source, held = _corrected(subject, followed, _before_unseen(followed.timeline, few), few)
    peak = max(timeline.before, *held)
    over = peak - followed.timeline.peak
    activations = timeline.kinds.get("activations", 0) + min(0, over)
    kinds = timeline.kinds | {"activations": activations, "kernels": max(0, over)}
    return _forecast(subject, timeline, source, peak, kinds, followed.scoring)


def _corrected(
    subject: Subject, followed: Followed, timeline: Timeline, few: tuple[Timeline, ...]
) -> tuple[Timeline, Source, list[int]]:
    """The timeline with what operations keep unseen if that raises the peak, and what is held within each."""
    held = _with_kernels(timeline, few, subject.device)
    if not followed.few:
        return timeline, "corrected", held
    more = unfollowed(timeline, followed.few, few)
    raised = max(size + unseen for size, unseen in zip(held, more, strict=True))
    if raised <= (1 + UNFOLLOWED) * max(timeline.before, *held):
        return timeline, "calibrated", held
    corrected = tuple(size + unseen for size, unseen in zip(timeline.held, more, strict=True))
    # At a whole update's end the same is held as before it, so that `before` stays as followed.
    timeline = replace(timeline, held=corrected)
    return timeline, "corrected", _with_kernels(timeline, few, subject.device)


def _parts(subject: Subject) -> int:
    """Parts of an update that are followed."""
    return min(TRACED_PARTS, subject.recipe.accumulate)


def _few(rows: int) -> tuple[int, ...]:
    """Two numbers of rows; one where it is the whole."""
    return (rows,) if rows <= FEW_ROWS[0] else (FEW_ROWS[0], min(FEW_ROWS[1], rows))


def _growing(subject: Subject, rows: int) -> tuple[Timeline, ...]:
    """Two updates each with two numbers of rows, the most that take little time; one where it is the whole."""
    parts = _parts(subject)
    sizes, steps = _few(rows), []
    for size in sizes[:-1]:
        steps.append(real_step(subject, size, parts=parts, updates=2))
    size = sizes[-1]
    while True:
        started = time.process_time()
        steps.append(real_step(subject, size, parts=parts, updates=2))
        if size == rows or time.process_time() - started > LONG_CPU_SECONDS:
            return tuple(steps[-2:])
        size = min(size * GROWTH, rows)


def _with_kernels(fake: Timeline, real: tuple[Timeline, ...], device: str) -> list[int]:
    """What is held within each operation of the followed step: the line from few rows, or measured alone.

    Alone are run those that may be the peak, taking that a kernel holds no more than a copy of its arguments. What is
    held since the step is looked at is taken off.
    """
    inside: list[int] = []
    unwatched: list[int] = []
    calls: list[Call | None] = []
    for held, observed in zip(fake.held, _matching_kernels(fake, real), strict=True):
        inside.append(
            max(0, round(line([(rows, size) for rows, size, _, _ in observed], fake.rows))) if observed else 0
        )
        unwatched.append(held - _more(observed, fake.rows))
        fewer, more = ((observed[at][0], observed[at][2]) for at in (0, -1)) if observed else ((0, None), (0, None))
        calls.append(call_at(fake.rows, fewer, more) if more[0] < fake.rows else None)
    most = {
        number: held + max(size, call.bytes)
        for number, (held, size, call) in enumerate(zip(unwatched, inside, calls, strict=True))
        if call is not None
    }
    peak = max(unwatched)
    near = sorted((number for number in most if most[number] >= peak), key=most.__getitem__, reverse=True)
    distinct = {call.key: call for number in near if (call := calls[number]) is not None}
    measured = replay(tuple(distinct.values()), device, REPLAY_CPU_SECONDS)
    return [
        held + (size if call is None else measured.get(call.key, size))
        for held, size, call in zip(unwatched, inside, calls, strict=True)
    ]


def _more(observed: list[KernelMemory], rows: int) -> int:
    """What is held at `rows` since the step is looked at."""
    points = [(few, more) for few, _, _, more in observed]
    return round(line(points, rows)) if points and min(more for _, more in points) > 0 else 0


def _before_unseen(fake: Timeline, real: tuple[Timeline, ...]) -> Timeline:
    """With what was held before the step as if that had not been looked at either."""
    if fake.before_at is None:
        return fake
    name, count = fake.before_at
    observed = [named[name][count % len(named[name])] for named in map(_by_name, real) if named[name]]
    return replace(fake, before=fake.before - _more(observed, fake.rows))


def _matching_kernels(fake: Timeline, real: tuple[Timeline, ...]) -> Iterator[list[KernelMemory]]:
    """What was found of each followed operation in each real step.

    An operation is known by its name and how many of that name ran before it; one that ran more often than in the real
    step counts from the beginning again.
    """
    steps = [_by_name(step) for step in real]
    counts: Counter[str] = Counter()
    for operation in fake.operations:
        yield [named[operation][counts[operation] % len(named[operation])] for named in steps if named[operation]]
        counts[operation] += 1


def _by_name(step: Timeline) -> dict[str, list[KernelMemory]]:
    """What was found of the operations of each name, in their order."""
    named: dict[str, list[KernelMemory]] = defaultdict(list)
    more = step.more or (0,) * len(step.operations)
    for operation, size, call, over in zip(step.operations, step.inside, step.calls, more, strict=True):
        named[operation].append(KernelMemory(step.rows, size, call, over))
    return named


def _extrapolated(real: tuple[Timeline, ...], rows: int) -> int:
    """The peak at `rows`: each operation on its own line where both steps have the same ones, else their peaks."""
    if len({step.operations for step in real}) > 1:
        return round(line([(step.rows, step.peak) for step in real], rows))
    held = [step.levels for step in real]
    return max(
        round(line(list(zip([step.rows for step in real], at, strict=True)), rows)) for at in zip(*held, strict=True)
    )


def _forecast(
    subject: Subject, timeline: Timeline, source: Source, value: int, kinds: dict[str, int], scoring: int
) -> MemoryForecast:
    (low, high), buckets = INTERVALS[source], bucket_bytes(subject, timeline)
    if kinds and buckets:
        kinds = kinds | {"buckets": buckets}
    forecast = MemoryForecast(
        rows=timeline.rows, accumulate=subject.recipe.accumulate, precision=subject.recipe.precision, source=source,
        parameter_count=timeline.parameters, kinds=kinds, value=value + buckets,
        low=round(value * low) + buckets, high=round(value * high) + buckets,
        scoring=scoring + buckets if scoring else 0, processes=subject.processes, nodes=subject.nodes,
        sharding=subject.sharding,
    )  # fmt: skip
    return forecast if subject.sharding == "none" else _divided(forecast, timeline)


def _divided(whole: MemoryForecast, timeline: Timeline) -> MemoryForecast:
    """The forecast of a process that has its part of the state alone, by that of one which has all of it.

    Which gradients are there at the peak is not known once the state is smaller, so that the upper end keeps them all.
    Each process begins with the whole weights, and the first ends with them, to score.
    """
    weights = 4 * whole.parameter_count
    adamw = {"parameters": weights, "gradients": weights, "optimizer": 2 * weights}
    of, left_out = {**adamw, **whole.kinds} if whole.kinds else adamw, 1 - 1 / whole.processes
    gone = {name: round(left_out * of[name]) for name in adamw}
    block, fewest = block_bytes(timeline), of["parameters"] + timeline.largest
    kinds = {name: size - gone.get(name, 0) for name, size in whole.kinds.items()}
    less = sum(gone.values()) - block
    parts = sum(of[name] - gone[name] for name in adamw)
    return whole.model_copy(
        update={
            "kinds": kinds | {"blocks": block} if kinds else {},
            "value": max(whole.value - less, fewest),
            "low": max(whole.low - less, fewest),
            "high": max(whole.high - less + gone["gradients"], fewest),
            "scoring": whole.scoring + parts if whole.scoring else 0,
        }
    )


def unfollowed(whole: Timeline, fake: tuple[Timeline, ...], real: tuple[Timeline, ...]) -> list[int]:
    """Bytes that the whole step holds over what was followed, after each operation.

    `fake` and `real` are first updates of as many parts, on the same rows each. Only names are compared that all ran
    equally often; after other operations the bytes are those of the one before. Less than was followed counts as none.
    """
    steps = [(followed.rows, _more_than_followed(followed, other)) for followed, other in zip(fake, real, strict=True)]
    numbers = _held_by_name(whole)
    extra_bytes: list[int | None] = [None] * len(whole.operations)
    for name, at in numbers.items():
        more = [(rows, names.get(name, ())) for rows, names in steps]
        if any(len(sizes) != len(at) for _, sizes in more):
            continue
        for count, (number, _) in enumerate(at):
            points = [(rows, sizes[count]) for rows, sizes in more]
            extra_bytes[number] = max(0, round(line(points, whole.rows)))
    now, filled = 0, []
    for size in extra_bytes:
        now = now if size is None else size
        filled.append(now)
    return filled


def _held_by_name(step: Timeline) -> dict[str, list[tuple[int, int]]]:
    """Number and bytes held of each operation, by name."""
    by_name: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (operation, held) in enumerate(zip(step.operations, step.held, strict=True)):
        by_name[operation].append((number, held))
    return by_name


def _more_than_followed(fake: Timeline, real: Timeline) -> dict[str, list[int]]:
    """What the real step held over the followed one after each operation, by the names that both ran equally often."""
    followed, ran = _held_by_name(fake), _held_by_name(real)
    return {
        name: [more - held for (_, held), (_, more) in zip(followed[name], ran[name], strict=True)]
        for name in followed.keys() & ran.keys()
        if len(followed[name]) == len(ran[name])
    }


def line(points: Sequence[tuple[int, int]], rows: int) -> float:
    """The straight line through two points at `rows`; never below the last one. One point: it grows in proportion."""
    (first, low), (last, high) = points[0], points[-1]
    if rows <= last:
        return high
    if first == last:
        return high * rows / last
    return max(high, high + (high - low) / (last - first) * (rows - last))
