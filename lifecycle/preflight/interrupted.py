"""A process that is killed while it writes a checkpoint.

The writer is a fork of this process, so that what it writes is this training's state by the real code, and no second
torch has to be imported (1.8 CPU s). It stops in the middle of state.pt, tells so, and is sent SIGKILL. It does nothing
else: it touches no accelerator, no thread pool, and no file but that one, and never returns.
"""

from __future__ import annotations

import io
import os
import select
import signal
from pathlib import Path
from typing import Any

from lifecycle.training.checkpoint import save_checkpoint
from lifecycle.training.loop import TrainState

# Writing the first half takes milliseconds; a writer that hangs is killed all the same.
SECONDS = 20.0


def kill_while_writing(folder: Path, identity: str, state: TrainState) -> bool:
    """Write a checkpoint of a state on the CPU in a process that is killed half-way; False if it never got there."""
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        _write_half(folder, identity, state, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], SECONDS)
        half_way = bool(ready) and os.read(reading, 1) == b"1"
    finally:
        os.close(reading)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
    return half_way and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _write_half(folder: Path, identity: str, state: TrainState, told: int) -> None:
    """In the fork: save, and stop for good once half of the bytes are written."""
    try:
        import torch

        # The parent's thread pool is not there in a fork; with one thread nothing waits for it.
        torch.set_num_threads(1)
        whole = torch.save

        def half(value: Any, file: Any) -> None:
            buffer = io.BytesIO()
            whole(value, buffer)
            file.write(buffer.getvalue()[: len(buffer.getvalue()) // 2])
            file.flush()
            os.write(told, b"1")
            while True:
                signal.pause()

        torch.save = half
        save_checkpoint(folder, identity, state)
    finally:
        os._exit(1)
