"""A real training step on a few rows: what its kernels hold for themselves while they run.

Kernels take memory that no operation returns: oneDNN's convolutions keep reordered copies of their input. On U-Nets
that was an eighth of the peak, and no trace on fake tensors shows it.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainworthy.lifecycle.engine.preflight.memory.call import Call, call_of
from trainworthy.lifecycle.engine.preflight.memory.fake_step import Timeline
from trainworthy.lifecycle.engine.preflight.memory.in_place import Span, more_when_seen, spans_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.techniques.parts import move_average

# Marks an operation among the profiler's events.
_MARK = "trainworthy operation "


class Levels(NamedTuple):
    """Of each operation: its call, what was held after it, and how much more within it.

    `spans` are the same operations, and `seen` all calls of torch that they lie in; CUDA tells neither.
    """

    operations: tuple[str, ...]
    held: tuple[int, ...]
    inside: tuple[int, ...]
    calls: tuple[Call | None, ...]
    spans: tuple[Span, ...] = ()
    seen: tuple[Span, ...] = ()


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
    more = more_when_seen(levels.spans, levels.seen, _unseen(run)) if levels.seen else ()
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
    seen = spans_of(profiled, moments, levels)
    return Levels(tuple(mode.operations), tuple(held), tuple(inside), tuple(mode.calls), tuple(ours), seen)


def memory_levels(profiled: Any) -> tuple[list[int], list[int]]:
    """Moments in ns and the bytes held from each on, of what was allocated under a profiler with profile_memory."""
    events = (event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]")
    found = sorted((event.start_ns(), number, event.nbytes()) for number, event in enumerate(events))
    moments, levels, held = [], [], 0
    for moment, _, size in found:
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
    seen: dict[int, tuple[int, int]] = {}

    def marked(number: int, func: Any, args: Any, kwargs: Any) -> Any:
        torch.cuda.reset_peak_memory_stats()
        out = func(*args, **kwargs)
        held = torch.cuda.memory_allocated()
        seen[number] = held - start, torch.cuda.max_memory_allocated() - held
        return out

    mode = _mode(marked)
    run(mode)
    # One that failed has not been seen.
    found = [seen.get(mode.first + number, (0, 0)) for number in range(len(mode.operations))]
    held, inside = zip(*found, strict=True) if found else ((), ())
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
