"""What monitors see of a training: a few numbers of every update, and a closer look at every SAMPLE_EVERY-th.

Both are plain numbers, read from the device once. What a monitor decides must follow from them alone, so that a resumed
training decides as an uninterrupted one; only what is about time or memory may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# A fixed number, since a changing one would let alarms and what follows them depend on the machine's speed.
SAMPLE_EVERY = 20
# How long the first update may take, which compiles, and whatever a script does between two calls.
FIRST_UPDATE_SECONDS = 1800.0
# Updates that are shown together to monitors that can wait: to ask all of them at each took 50 µs an update, for behind
# a backward pass nothing of theirs is in the processor's caches.
WINDOW = 20


class Signals(NamedTuple):
    """One update, seen after backward and before it is applied.

    `step` counts updates from 0. `loss` is the mean unweighted loss of its rows, `squared` the mean squared one;
    `grad_norm` is before clipping, `grad_norms` each parameter's, None where there is no gradient. `seconds` is the
    wall time since the update before, `wait_seconds` what of it was waiting for rows. `batch` is a fingerprint of its
    row numbers, None where rows have none.
    """

    step: int
    loss: float
    squared: float
    rows: int
    learning_rate: float
    grad_norm: float
    grad_norms: list[float | None]
    seconds: float
    wait_seconds: float
    batch: int | None = None


@dataclass(frozen=True)
class Layer:
    """What one module gave in a sampled forward pass.

    `zero_rows` is the share of its features that were zero for every row, `equal_rows` True if all rows gave the same.
    """

    name: str
    rms: float
    largest: float
    zero_rows: float
    equal_rows: bool
    finite: bool


@dataclass(frozen=True)
class Sample:
    """A closer look at one update, after it was applied.

    By parameter, in the model's order: its norm, the norm of its change by this update, and the share of its elements
    with a gradient that the update left bit for bit as they were. `layers` are the leaf modules' outputs; `spread` is
    the standard deviation of the model's outputs over the rows, relative to their size, and `deviation` as it is; both
    NaN of one row. `memory_bytes` is what the process, or the GPU's allocator, holds.

    `left_out` names trainable parameters, as the model is now, that no optimizer has. `content` is a fingerprint of the
    rows' inputs, whatever their order. `replicas` are each process' checksums of its parameters, () where there is one
    process. `gpu_busy` is the share of time in which the GPU worked, None where that is not known. `evaluates`: the
    model was called with gradients in evaluation mode, and not in training mode.
    """

    step: int
    names: tuple[str, ...]
    trainable: tuple[bool, ...]
    norms: tuple[float, ...]
    changes: tuple[float, ...]
    unchanged: tuple[float, ...]
    layers: tuple[Layer, ...]
    spread: float
    deviation: float
    memory_bytes: float
    left_out: tuple[str, ...] = ()
    content: int | None = None
    replicas: tuple[tuple[int, ...], ...] = ()
    gpu_busy: float | None = None
    evaluates: bool = False
    along: float = 0.0
