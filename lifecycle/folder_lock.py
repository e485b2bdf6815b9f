"""One worker a folder: an exclusive lock that the kernel frees when the last process that holds it is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from lifecycle.cost.meter import queued


@contextlib.contextmanager
def locked(folder: Path, tell: Callable[[str], None]) -> Iterator[int]:
    """Hold the folder's lock and give its descriptor; a wait for it is told, and counted as queue seconds.

    A child that inherits the descriptor holds the lock too: it is free when both are gone.
    """
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another run does the same work{_holder(folder)}; waiting for it to end")
            with queued():
                fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield file.fileno()


def _holder(folder: Path) -> str:
    """Who wrote its name last; it may be just about to, so nothing depends on it."""
    named = (folder / ".lock").read_text()
    return f" ({named})" if named else ""
