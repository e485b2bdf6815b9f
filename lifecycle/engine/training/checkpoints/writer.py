"""Writes checkpoints in a thread of its own; the training waits for the copy of its state alone."""

from __future__ import annotations

import copy
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import refuse_not_finite, state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.jobs import CheckpointRef
from trainworthy.lifecycle.storage.checkpoints import checkpoint_path
from trainworthy.lifecycle.storage.durable.store import CheckpointStore, Copies


class Buffers:
    """Memory of this host for one copy of a state; it grows with the first copy and is used again by the next.

    Allocating and touching fresh pages takes longer than the copy itself.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy(self, saved: dict[str, Any]) -> dict[str, Any]:
        """An equal state that shares nothing with `saved`; it is valid until the next copy."""
        buffers, copied = self._buffers, {}
        self._buffers = {}
        result = self._copy(saved, "", buffers, copied)
        if any(tensor.is_cuda for tensor, _ in copied.values()):
            torch.cuda.synchronize()
        return result

    def _copy(self, value: Any, name: str, buffers: dict[str, Tensor], copied: dict[Any, tuple[Tensor, Tensor]]) -> Any:
        if torch.is_tensor(value):
            return self._tensor(value, name, buffers, copied)
        if isinstance(value, dict):
            # Copied whole first: a model's state_dict is a dict with a version of each module beside it.
            whole = copy.copy(value)
            for key, inner in value.items():
                whole[key] = self._copy(inner, f"{name}/{key}", buffers, copied)
            return whole
        if isinstance(value, list | tuple):
            inner = [self._copy(entry, f"{name}/{number}", buffers, copied) for number, entry in enumerate(value)]
            return inner if isinstance(value, list) else tuple(inner)
        return copy.deepcopy(value)

    def _tensor(self, tensor: Tensor, name: str, buffers: dict[str, Tensor], copied: dict[Any, Any]) -> Tensor:
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_quantized:
            return tensor.cpu().clone()
        # Tied weights have two names: copied once, they are one storage in the file, too.
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in copied:
            return copied[place][1]
        buffer = buffers.get(name)
        if buffer is None or (buffer.dtype, buffer.shape) != (tensor.dtype, tensor.shape):
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
        buffer.copy_(tensor, non_blocking=tensor.is_cuda)
        # The tensor is kept till the copy ends, or another one could lie at its address.
        self._buffers[name], copied[place] = buffer, (tensor, buffer)
        return buffer


class Stored(NamedTuple):
    """A checkpoint on disk, and the seconds from the copy to its last byte, a durable copy included."""

    step: int
    reference: CheckpointRef
    seconds: float


class Writer:
    """At most one write is under way; what it raises is raised by the next call of `busy` or `finish`."""

    def __init__(self, folder: Path, identity: str, durable: CheckpointStore | None = None) -> None:
        self.folder, self.identity, self._copies = folder, identity, Copies(durable)
        self.newest: Stored | None = None
        self._buffers, self._thread = Buffers(), ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Stored] | None = None

    def begin(self, state: TrainState) -> float:
        """Copy the state and start writing it; the seconds that took. Raises WeightsNotFiniteError."""
        assert self._writing is None, "one write at a time: the buffers are in use"
        started = time.monotonic()
        refuse_not_finite(state)
        saved = state_dict(state)
        # Whole states that are gathered share nothing with the training, and would be held twice.
        apart = {name: saved.pop(name) for name in ("model", "optimizers")} if state.shards is not None else {}
        saved = self._buffers.copy(saved) | apart
        self._writing = self._thread.submit(self._store, saved)
        return time.monotonic() - started

    def busy(self) -> bool:
        """True while a checkpoint is written. Raises what its write raised."""
        if self._writing is not None and self._writing.done():
            self.finish()
        return self._writing is not None

    def finish(self) -> Stored | None:
        """Wait for the write under way; the newest one, None if there is none. Raises what the write raised."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self.newest = writing.result()
        return self.newest

    def close(self) -> None:
        """Wait for the write under way, whatever becomes of it."""
        self._thread.shutdown(wait=True)

    def _store(self, saved: dict[str, Any]) -> Stored:
        started = time.monotonic()
        reference = write_checkpoint(self.folder, self.identity, saved)
        self._copies.add(checkpoint_path(self.folder, saved["step"]))
        return Stored(saved["step"], reference, time.monotonic() - started)
