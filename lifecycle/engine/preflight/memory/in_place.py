"""What a step holds only because it is looked at.

While any dispatch mode looks on, torch's own C++ code writes out of place what it else writes in place: the bias of a
linear layer whose input is not contiguous, gradients that are added up, the gradients of max, topk, cumprod and prod,
and more. So a followed step, and a real one whose operations are seen, holds up to twice as much as a step that nobody
looks at. No list of such code is whole. Instead a step is run both ways, and what each operation held is compared with
the same one in the other run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    found = []
    for start, _, end, name in sorted((one.start_ns(), -one.end_ns(), one.end_ns(), one.name()) for one in events):
        first, last = bisect_left(moments, start), bisect_left(moments, end)
        before = levels[first - 1] if first else 0
        found.append(Span(name, start, end, max(levels[first:last], default=before)))
    return tuple(found)


def more_when_seen(operations: Sequence[Span], seen: Sequence[Span], unseen: Sequence[Span]) -> list[int]:
    """How much more each of the `operations` of the step that was `seen` held than it does unseen.

    One that the unseen step did not make is told by the outermost calls around both; 0 where these differ too.
    """
    ours, theirs = _outermost(seen), _outermost(unseen)
    same, began = _same(ours, theirs), [one[0].start for one in ours]
    reached = dict.fromkeys(same, 0)
    found = []
    for operation in operations:
        number = bisect_right(began, operation.start) - 1
        if number not in same:
            found.append(0)
            continue
        calls = theirs[same[number]]
        rest = range(reached[number], len(calls))
        at = next((at for at in rest if calls[at].bare == operation.bare), None)
        if at is None:
            found.append(ours[number][0].peak - calls[0].peak)
            continue
        found.append(operation.peak - calls[at].peak)
        reached[number] = next((later for later in rest if calls[later].start >= calls[at].end), len(calls))
    return found


def _outermost(spans: Sequence[Span]) -> list[list[Span]]:
    """Each call that no other one made, with those that it made."""
    found: list[list[Span]] = []
    for span in spans:
        if found and span.start < found[-1][0].end:
            found[-1].append(span)
        else:
            found.append([span])
    return found


def _same(ours: Sequence[Sequence[Span]], theirs: Sequence[Sequence[Span]]) -> dict[int, int]:
    """Numbers of equal outermost calls: those before the first that differs, and those after the last."""
    names = [one[0].name for one in ours], [one[0].name for one in theirs]
    most = min(map(len, names))
    first = next((at for at in range(most) if names[0][at] != names[1][at]), most)
    last = next((at for at in range(most - first) if names[0][-1 - at] != names[1][-1 - at]), most - first)
    longer = len(theirs) - len(ours)
    return {at: at for at in range(first)} | {at: at + longer for at in range(len(ours) - last, len(ours))}
