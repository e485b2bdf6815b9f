"""Writes checkpoints in a thread of its own; the training waits for the copy of its state alone."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import refuse_not_finite, state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.checkpoints.copied import Buffers
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.jobs import CheckpointRef
from trainworthy.lifecycle.storage.checkpoints import Copies, checkpoint_path


class Stored(NamedTuple):
    """A checkpoint on disk, and the seconds from the copy to its last byte, a durable copy included."""

    step: int
    reference: CheckpointRef
    seconds: float


class Writer:
    """At most one write is under way; what it raises is raised by the next call of `busy` or `finish`."""

    def __init__(self, folder: Path, identity: str, durable: Path | None = None) -> None:
        self.folder, self.identity, self._copies = folder, identity, Copies(durable)
        self.newest: Stored | None = None
        self._buffers, self._thread = Buffers(), ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Stored] | None = None

    def begin(self, state: TrainState) -> float:
        """Copy the state and start writing it; the seconds that took. Raises WeightsNotFiniteError."""
        assert self._writing is None, "one write at a time: the buffers are in use"
        started = time.monotonic()
        refuse_not_finite(state.model)
        saved = self._buffers.copy(state_dict(state))
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
