"""What the monitors saw of the updates of a window, for who follows a training: no part of its result."""

from __future__ import annotations

import math
import statistics

from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.protocol.signals import Sample
from trainworthy.lifecycle.storage.metrics_file import WindowSignals


def window_signals(watch: Watch, step: int, updates: int) -> WindowSignals | None:
    """Of a window of so many updates that ends at `step`, as far as the watch remembers it; None if it does not."""
    signals = [signal for signal in list(watch.recorder.signals)[-updates:] if step - updates <= signal.step < step]
    norms = [signal.grad_norm for signal in signals if math.isfinite(signal.grad_norm)]
    if not norms:
        return None
    return WindowSignals(
        step=step,
        grad_norm=statistics.median(norms),
        update_ratio=_update_ratio(watch.samples[-1]) if watch.samples else None,
        seconds=statistics.median(signal.seconds for signal in signals),
    )


def _update_ratio(sample: Sample) -> float | None:
    """The median over parameters of an update's size relative to theirs: about 0.001 in a healthy training."""
    pairs = zip(sample.changes, sample.norms, sample.trainable, strict=True)
    ratios = [change / norm for change, norm, trainable in pairs if trainable and norm > 0 and math.isfinite(change)]
    return statistics.median(ratios) if ratios else None
