"""Made-up signals and samples of a healthy training, with what a test wants to be otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding, Monitor
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY, WINDOW, Layer, Sample, Signals

NAMES = ("first.weight", "first.bias", "middle.weight", "middle.bias", "head.weight", "head.bias")
Change = Callable[[Any], Any]


def same(one: Any) -> Any:
    return one


def signals(step: int, steps: int = 400) -> Signals:
    """A loss that falls from 0.7 towards 0.3, with noise, at a rate that falls to zero."""
    drawn = random.Random(step)
    loss = 0.3 + 0.4 / (1 + step / 40) + drawn.gauss(0, 0.02)
    norms: list[float | None] = [0.2 * (1 + 0.2 * drawn.random()) for _ in NAMES]
    total = sum(norm * norm for norm in norms if norm) ** 0.5
    return Signals(
        step, loss, loss * loss + 0.02, 32, 1e-3 * (1 - step / (steps + 1)), total, norms, 0.01, 0.0005, 1000 + step
    )


def sample(step: int, steps: int = 400) -> Sample:
    drawn = random.Random(step)
    layers = tuple(
        Layer(name, rms=0.5, largest=2.0, zero_rows=0.1, equal_rows=False, finite=True)
        for name in ("first", "middle", "head")
    )
    share = 1 - step / (steps + 1)
    return Sample(
        step, NAMES, (True,) * 6, (3.0, 0.5, 3.0, 0.5, 1.0, 0.1),
        tuple(c * share for c in (3e-3, 2e-3, 3e-3, 2e-3, 2e-3, 1e-3)),
        (0.0,) * 6, layers, spread=0.5 + 0.05 * drawn.random(), deviation=0.5,
        memory_bytes=5e8 + (1e8 if step > 60 else 0.0), content=step,
    )  # fmt: skip


def shown(
    monitor: Monitor, steps: int = 400, every: Change = same, sampled: Change = same, onset: int = 0
) -> list[Finding]:
    """What a monitor finds in a training; from `onset` on `every` and `sampled` change what it is shown."""
    updates = [signals(step, steps) for step in range(steps)]
    updates = [every(seen) if seen.step >= onset else seen for seen in updates]
    samples = {step: sample(step, steps) for step in range(0, steps, SAMPLE_EVERY)}
    samples = {step: sampled(closer) if step >= onset else closer for step, closer in samples.items()}
    return told(monitor, updates, samples)


def told(monitor: Monitor, updates: Sequence[Signals], samples: Mapping[int, Sample] = {}) -> list[Finding]:
    """What a monitor finds in these updates, shown as a watch does; `samples` by their steps."""
    found: list[Finding | None] = []
    for count, seen in enumerate(updates, 1):
        found.append(monitor.after_backward(seen))
        if count % WINDOW == 0:
            found.append(monitor.after_window(updates[count - WINDOW : count]))
        if seen.step in samples:
            found.append(monitor.after_sample(samples[seen.step], seen))
    return [one for one in found if one is not None]


def with_gradients(change: Callable[[int, float], float | None]) -> Change:
    """Each parameter's gradient norm by its number and what it was."""

    def changed(seen: Signals) -> Signals:
        norms = [change(n, norm) for n, norm in enumerate(seen.grad_norms) if norm is not None]
        return seen._replace(grad_norms=norms, grad_norm=sum(norm * norm for norm in norms if norm) ** 0.5)

    return changed


def with_layers(**changes: Any) -> Change:
    """All layers otherwise."""
    return lambda seen: replace(seen, layers=tuple(replace(layer, **changes) for layer in seen.layers))


def with_sample(**changes: Any) -> Change:
    return lambda seen: replace(seen, **changes)
