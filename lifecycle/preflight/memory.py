"""Memory forecast: what the worker of the full stage will hold at its peak, without allocating it.

Parameters, gradients, optimizer state and activations come from two steps on fake tensors
(FakeTensorMode and MemTracker: shapes without storage). Rows and tensors are extrapolated from the
sample; what the process holds already is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.jobs import PreflightJob
from lifecycle.preflight.sample import Sample
from lifecycle.preflight.subject import Subject
from lifecycle.records import Forecast

if TYPE_CHECKING:
    import pandas as pd

# Measured on tabular networks, the worker's real peak lay between 0.8 and 1.3 of the forecast: see docs/benchmarks.md.
LOW, HIGH = 0.75, 1.4


def forecast_memory(job: PreflightJob, sample: Sample, rows: pd.DataFrame, trained: int) -> Forecast:
    """Peak bytes of the full stage's process; `trained` is what training_bytes gave."""
    import psutil

    held = psutil.Process().memory_info().rss
    scale = len(rows) / len(sample.rows)
    tensors = sum(t.element_size() * t.numel() for t in sample.data.inputs.values()) * scale
    # Preparing tensors holds a copy of the feature columns for a while.
    copied = rows[list(job.rows.features)].memory_usage(deep=False).sum()
    value = held + tensors + copied + trained
    return Forecast(name="memory", unit="bytes", value=float(value), low=value * LOW, high=value * HIGH)


def training_bytes(subject: Subject) -> int:
    """Peak bytes of two training steps on fake tensors."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    size = min(subject.batch_rows(), len(subject.training.targets))
    with FakeTensorMode() as fake:
        model = subject.build()
        optimizers = subject.optimizers(model)
        inputs, targets = (
            {name: fake.from_tensor(torch.empty(0)).new_empty((size, *tensor.shape[1:]), dtype=tensor.dtype)
             for name, tensor in tensors.items()}
            for tensors in (subject.training.inputs, {"targets": subject.training.targets})
        )  # fmt: skip
        tracker = MemTracker()
        tracker.track_external(model, *optimizers, *targets.values(), *inputs.values())
        with tracker:
            for step in range(2):
                if step:
                    tracker.reset_mod_stats()
                subject.recipe.loss_fn(model(inputs), targets["targets"]).mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        peak = tracker.get_tracker_snapshot("peak")
    return int(sum(next(value for key, value in kinds.items() if str(key) == "Total") for kinds in peak.values()))
