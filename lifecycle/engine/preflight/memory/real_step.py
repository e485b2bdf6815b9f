"""A real training step on a few rows: what its kernels hold for themselves while they run.

Kernels take memory that no operation returns: oneDNN's convolutions keep reordered copies of their input. On U-Nets
that was an eighth of the peak, and no trace on fake tensors shows it.

What a step holds only because it is looked at.

While any dispatch mode looks on, torch's own C++ code writes out of place what it else writes in place: the bias of a
linear layer whose input is not contiguous, gradients that are added up, the gradients of max, topk, cumprod and prod,
and more. So a followed step, and a real one whose operations are seen, holds up to twice as much as a step that nobody
looks at. No list of such code is whole. Instead a step is run both ways, and what each operation held is compared with
the same one in the other run.

Single operations run again, alone, with as many rows as the whole batch has: what their kernels hold then.

A kernel's memory is no straight line in the rows: oneDNN takes another kernel from some size on, and a line through
that point from few rows was 66 % too high, or 7 % too low. An operation alone needs no step around it, only
tensors of the sizes that it will meet; these follow from the sizes in two real steps on few rows.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainworthy.lifecycle.engine.preflight.memory.call import Call, call_of
from trainworthy.lifecycle.engine.preflight.memory.fake_step import Timeline
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.techniques.parts import move_average

# The profiler's events of torch's own code; others are marks that somebody has set.
_OWN = ("aten::", "autograd::engine::evaluate_function")


class Span(NamedTuple):
    """A call of torch: when, in ns, and the most that was held within it."""

    name: str
    start: int
    end: int
    peak: int

    @property
    def bare(self) -> str:
        """Its name without namespace and overload; one that writes in place has the name of the other."""
        return self.name.replace("::", ".").split(".")[1].rstrip("_")


def spans_of(profiled: Any, moments: Sequence[int], levels: Sequence[int]) -> tuple[Span, ...]:
    """All calls of torch in order, each before those that it made itself."""
    events = (event for event in profiled.profiler.kineto_results.events() if event.name().startswith(_OWN))
    spans = []
    for start, _, end, name in sorted(
        (event.start_ns(), -event.end_ns(), event.end_ns(), event.name()) for event in events
    ):
        first, last = bisect_left(moments, start), bisect_left(moments, end)
        before = levels[first - 1] if first else 0
        spans.append(Span(name, start, end, max(levels[first:last], default=before)))
    return tuple(spans)


def extra_when_observed(operations: Sequence[Span], observed: Sequence[Span], unseen: Sequence[Span]) -> list[int]:
    """How much more each of the `operations` of the step that was `observed` held than it does unseen.

    One that the unseen step did not make is told by the outermost calls around both; 0 where these differ too.
    """
    ours, theirs = _outermost(observed), _outermost(unseen)
    same, began = _same(ours, theirs), [group[0].start for group in ours]
    reached = dict.fromkeys(same, 0)
    more = []
    for operation in operations:
        number = bisect_right(began, operation.start) - 1
        if number not in same:
            more.append(0)
            continue
        calls = theirs[same[number]]
        rest = range(reached[number], len(calls))
        at = next((at for at in rest if calls[at].bare == operation.bare), None)
        if at is None:
            more.append(ours[number][0].peak - calls[0].peak)
            continue
        more.append(operation.peak - calls[at].peak)
        reached[number] = next((later for later in rest if calls[later].start >= calls[at].end), len(calls))
    return more


def _outermost(spans: Sequence[Span]) -> list[list[Span]]:
    """Each call that no other one made, with those that it made."""
    groups: list[list[Span]] = []
    for span in spans:
        if groups and span.start < groups[-1][0].end:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def _same(ours: Sequence[Sequence[Span]], theirs: Sequence[Sequence[Span]]) -> dict[int, int]:
    """Numbers of equal outermost calls: those before the first that differs, and those after the last."""
    names = [group[0].name for group in ours], [group[0].name for group in theirs]
    most = min(map(len, names))
    first = next((at for at in range(most) if names[0][at] != names[1][at]), most)
    last = next((at for at in range(most - first) if names[0][-1 - at] != names[1][-1 - at]), most - first)
    longer = len(theirs) - len(ours)
    return {at: at for at in range(first)} | {at: at + longer for at in range(len(ours) - last, len(ours))}


# Marks an operation among the profiler's events.
_MARK = "trainworthy operation "


class Levels(NamedTuple):
    """Of each operation: its call, what was held after it, and how much more within it.

    `spans` are the same operations, and `observed` all calls of torch that they lie in; CUDA tells neither.
    """

    operations: tuple[str, ...]
    held: tuple[int, ...]
    inside: tuple[int, ...]
    calls: tuple[Call | None, ...]
    spans: tuple[Span, ...] = ()
    observed: tuple[Span, ...] = ()


def real_step(subject: Subject, rows: int, *, parts: int = 1, updates: int = 1) -> Timeline:
    """The last of so many updates of `rows` rows a part, on the subject's device, in the allocator's bytes."""
    size = rows * parts
    # A batch may have more rows than the sample: they repeat, their values do not matter.
    data = subject.training.take(torch.arange(size, device=subject.device) % len(subject.training.targets))
    recipe = replace(subject.recipe, accumulate=parts)

    def run(mode: Any = None) -> None:
        state = subject.state()
        state.model.train()
        for state.step in range(updates):
            if mode:
                mode.begin()
            with mode or nullcontext():
                train_step(state, data, torch.arange(size, device=subject.device), recipe)
                move_average(state)

    levels = on_device(subject.device, run)
    more = extra_when_observed(levels.spans, levels.observed, _unseen(run)) if levels.observed else ()
    return Timeline(rows, levels.operations, levels.held, levels.inside, levels.calls, more=tuple(more))


def _unseen(run: Callable[[], None]) -> tuple[Span, ...]:
    """All calls of torch when no mode looks on."""
    from torch.profiler import ProfilerActivity, profile

    # What was left behind before must not be released meanwhile: it shifted an LSTM's peak from 2.7 to 3.8 MB.
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    return spans_of(profiled, *memory_levels(profiled))


def on_device(device: str, run: Callable[[Any], None]) -> Levels:
    """The last begun part of what `run` does under the mode it is given."""
    return (_on_cuda if device == "cuda" else _on_cpu)(run)


def _on_cpu(run: Callable[[Any], None]) -> Levels:
    """The CPU's allocator tells its bytes to the profiler alone: each allocation and release, with its time."""
    from torch.profiler import ProfilerActivity, profile, record_function

    def marked(number: int, func: Any, args: Any, kwargs: Any) -> Any:
        with record_function(f"{_MARK}{number}"):
            return func(*args, **kwargs)

    mode = _mode(marked)
    # What was left behind before must not be released meanwhile: it shifted an LSTM's peak from 2.7 to 3.8 MB.
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run(mode)
    moments, levels = memory_levels(profiled)
    spans = _spans(profiled)
    held, inside = [], []
    for number in range(mode.first, mode.first + len(mode.operations)):
        first, last = (bisect_left(moments, moment) for moment in spans[number])
        after = levels[last - 1] if last else 0
        held.append(after)
        inside.append(max(levels[first:last], default=after) - after)
    operations = zip(mode.operations, held, inside, strict=True)
    ours = (Span(name, *spans[mode.first + at], peak + more) for at, (name, peak, more) in enumerate(operations))
    observed = spans_of(profiled, moments, levels)
    return Levels(tuple(mode.operations), tuple(held), tuple(inside), tuple(mode.calls), tuple(ours), observed)


def memory_levels(profiled: Any) -> tuple[list[int], list[int]]:
    """Moments in ns and the bytes held from each on, of what was allocated under a profiler with profile_memory."""
    events = (event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]")
    allocations = sorted((event.start_ns(), number, event.nbytes()) for number, event in enumerate(events))
    moments, levels, held = [], [], 0
    for moment, _, size in allocations:
        held += size
        moments.append(moment)
        levels.append(held)
    return moments, levels


def _spans(profiled: Any) -> dict[int, tuple[int, int]]:
    """First and last moment of each marked operation, in ns."""
    events = ((event.name(), event) for event in profiled.profiler.kineto_results.events())
    return {
        int(name.removeprefix(_MARK)): (event.start_ns(), event.end_ns())
        for name, event in events
        if name.startswith(_MARK)
    }


def _on_cuda(run: Callable[[Any], None]) -> Levels:
    """CUDA's allocator keeps its own peak; it is read after each operation."""
    start = torch.cuda.memory_allocated()
    observed: dict[int, tuple[int, int]] = {}

    def marked(number: int, func: Any, args: Any, kwargs: Any) -> Any:
        torch.cuda.reset_peak_memory_stats()
        out = func(*args, **kwargs)
        held = torch.cuda.memory_allocated()
        observed[number] = held - start, torch.cuda.max_memory_allocated() - held
        return out

    mode = _mode(marked)
    run(mode)
    # One that failed has not been seen.
    measured = [observed.get(mode.first + number, (0, 0)) for number in range(len(mode.operations))]
    held, inside = zip(*measured, strict=True) if measured else ((), ())
    return Levels(tuple(mode.operations), held, inside, tuple(mode.calls))


def _mode(marked: Callable[[int, Any, Any, Any], Any]) -> Any:
    """A dispatch mode that runs each operation through `marked` with its number; `begin` forgets earlier updates."""

    class Numbered(TorchDispatchMode):
        first = 0

        def __init__(self) -> None:
            super().__init__()
            self.operations: list[str] = []
            self.calls: list[Call | None] = []

        def begin(self) -> None:
            self.first += len(self.operations)
            self.operations, self.calls = [], []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.call(func, args, kwargs or {})

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            number, call = len(self.operations), call_of(func, args, kwargs)
            self.operations.append(str(func))
            self.calls.append(None)
            started = time.process_time()
            out = marked(self.first + number, func, args, kwargs)
            self.calls[number] = call and replace(call, cpu_seconds=time.process_time() - started)
            return out

    return Numbered()


def replay(calls: Sequence[Call], device: str, cpu_seconds: float) -> dict[str, int]:
    """Bytes that each call's kernels held beside its outputs, by key, in the order given.

    Left out is what would take more than is left of `cpu_seconds`, and what does not run on zeros.
    """
    ran: list[tuple[str, bool]] = []

    def run(mode: Any) -> None:
        mode.begin()
        end = time.process_time() + cpu_seconds
        for call in calls:
            if time.process_time() + call.cpu_seconds <= end:
                ran.append((call.key, _runs(call, mode)))

    with torch.no_grad():
        levels = on_device(device, run)
    return {key: inside for (key, well), inside in zip(ran, levels.inside, strict=True) if well}


def _runs(call: Call, mode: Any) -> bool:
    try:
        call.again(mode.call)
    except Exception:
        # Zeros may be refused, or lengths not fit together: the line from few rows stays.
        return False
    return True
