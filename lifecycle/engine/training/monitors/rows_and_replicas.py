"""What a closer look sees beside weights and outputs: who trains what, and whether rows came before."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from trainworthy.lifecycle.engine.training.state import TrainData, TrainState

# Rows of a batch whose contents are looked at.
MOST_ROWS = 4096
# Row numbers of a batch that tell it from others.
NUMBERS = 16


def left_out(state: TrainState) -> tuple[str, ...]:
    """Names of trainable parameters, as the model is now, that no optimizer has."""
    moved = {
        id(parameter)
        for optimizer in state.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    named = state.model.named_parameters()
    return tuple(name for name, parameter in named if parameter.requires_grad and id(parameter) not in moved)


def row_numbers(data: TrainData, rows: Tensor) -> int | None:
    """A fingerprint of the numbers of an update's rows, in their order: of NUMBERS of them, evenly spread.

    Of all of them it would take 40 µs behind a backward pass. None where they say nothing: of all rows at once, or of
    rows that a loader has made for this update. None on a GPU as well, which would have to be waited for.
    """
    count = len(rows)
    if count == len(data.targets) or not rows.is_cpu:
        return None
    return hash(tuple(rows[:: -(-count // NUMBERS)].tolist()))


def row_sums(inputs: Any) -> Tensor | None:
    """Of each row the sum of all its numbers, `(N,)` in float64; None of inputs that are no tensors."""
    while isinstance(inputs, list | tuple) and len(inputs) == 1:
        inputs = inputs[0]
    values = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, list | tuple) else (inputs,)
    tensors = [tensor for tensor in values if isinstance(tensor, torch.Tensor) and tensor.dim()]
    if not tensors or any(len(tensor) != len(tensors[0]) for tensor in tensors):
        return None
    rows = [tensor.detach()[:MOST_ROWS].reshape(min(len(tensor), MOST_ROWS), -1) for tensor in tensors]
    # Each input counts otherwise, so that equal sums of several are no chance.
    return torch.stack([(number + 1) * matrix.sum(1, dtype=torch.float64) for number, matrix in enumerate(rows)]).sum(0)


def content_of(sums: np.ndarray) -> int | None:
    """A fingerprint of rows whatever their order; None of no rows."""
    return zlib.crc32(np.sort(sums).tobytes()) if len(sums) else None


def replica_checksums(parameters: list[torch.nn.Parameter]) -> tuple[tuple[int, ...], ...]:
    """Each process' checksums of its parameters' bits, by rank; () where there is one process.

    All processes of the default group have to call it at the same update.
    """
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return ()
    mine = torch.stack([_checksum(parameter.detach()) for parameter in parameters])
    every = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(every, mine)
    return tuple(tuple(checksums.tolist()) for checksums in every)


def _checksum(parameter: Tensor) -> Tensor:
    """A sum of the elements' bits, each times an odd number of its place: equal for equal bits in equal places."""
    kinds: dict[int, Any] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = parameter.contiguous().view(kinds[parameter.element_size()]).flatten().long()
    return (bits * (2 * torch.arange(len(bits), device=bits.device) + 1)).sum()


def gpu_busy(device: torch.device) -> float | None:
    """Share of the last second or so in which the GPU worked; None without a GPU, NVML or pynvml."""
    if device.type != "cuda":
        return None
    try:
        return torch.cuda.utilization(device) / 100
    # pynvml's own errors, where the driver has no NVML, are a class that can't be named without it.
    except Exception:
        return None
