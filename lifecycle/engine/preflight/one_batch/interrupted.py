"""A process that is killed while it writes a checkpoint.

The writer is a fork of this process, so that it writes by the real code, and no second torch has to be imported (1.8
CPU s). The bytes are made before the fork: torch refuses CUDA in a fork of a process that uses it, and its thread pool
is not there. The writer stops in the middle of state.pt, tells so, and is sent SIGKILL. It touches no file but that
one, never returns, and ends by itself if nobody kills it.
"""

from __future__ import annotations

import io
import os
import select
import signal
from pathlib import Path
from typing import Any

import torch

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.state import TrainState

# Writing the first half takes milliseconds. Only a writer that hangs is waited for as long, and not one that other work
# keeps from a core.
SECONDS = 120.0


def kill_while_writing(folder: Path, identity: str, state: TrainState) -> bool:
    """Write a checkpoint of a state on the CPU in a process that is killed half-way; False if it never got there."""
    saved, whole = state_dict(state), io.BytesIO()
    torch.save(saved, whole)
    half = whole.getvalue()[: whole.tell() // 2]
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        _write_half(folder, identity, saved, half, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], SECONDS)
        half_way = bool(ready) and os.read(reading, 1) == b"1"
    finally:
        os.close(reading)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
    return half_way and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _write_half(folder: Path, identity: str, saved: dict[str, Any], half: bytes, told: int) -> None:
    """In the fork: save, and stop for good once half of the bytes are written."""
    try:
        # Without the process that would kill it, it would be there for ever.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)

        def write(value: Any, file: Any) -> None:
            file.write(half)
            file.flush()
            os.write(told, b"1")
            while True:
                signal.pause()

        torch.save = write
        write_checkpoint(folder, identity, saved)
    finally:
        os._exit(1)
