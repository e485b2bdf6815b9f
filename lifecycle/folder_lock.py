"""One worker a folder: an exclusive lock that the kernel frees when the last process that holds it is gone.

On a shared disk the file server may give the lock away while its holder is cut off. The holder's name in the file is
its lease: a worker that finds another's there has lost it and must not write on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from trainworthy.lifecycle.cost.meter import queued
from trainworthy.lifecycle.errors import LeaseLostError

# How often a lease, or a lock that another holds, is looked at, seconds: on a file server a look is a round trip.
LOOK_SECONDS = 1.0
# The file that is locked.
LOCK = ".lock"


@contextlib.contextmanager
def locked(
    folder: Path, tell: Callable[[str], None], name: str = LOCK, look: Callable[[], None] | None = None
) -> Iterator[int]:  # fmt: skip
    """Hold the folder's lock `name` and give its descriptor; a wait for it is told, and counted as queue seconds.

    A child that inherits the descriptor holds the lock too: it is free when both are gone. With `look` it is tried
    every LOOK_SECONDS, and that is called between; what it raises ends the wait.
    """
    with (folder / name).open("a+") as file:
        if not taken(file):
            tell(f"another run does the same work{_holder(folder / name)}; waiting for it to end")
            with queued():
                if look is None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                while look is not None and not taken(file):
                    look()
                    time.sleep(LOOK_SECONDS)
        file.truncate(0)
        # With the time, so that a later process of that number is another holder.
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.time_ns()}")
        file.flush()
        yield file.fileno()


def is_free(folder: Path, name: str = LOCK) -> bool:
    """True if nobody holds the folder's lock `name` now."""
    with (folder / name).open("a") as file:
        return taken(file)


def taken(file: IO[str]) -> bool:
    """Take the lock of an open file if nobody holds it; True once this one does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: Path) -> str:
    """Who wrote its name last; it may be just about to, so nothing depends on it."""
    named, _, _ = lock.read_text().partition(" since ")
    return f" ({named})" if named else ""


class Lease:
    """The name in the lock's file as it was when this was made; whoever makes it holds the lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._name, self._looked = self._path.read_text(), time.monotonic()

    def check(self) -> None:
        """Raises LeaseLostError if another has taken the lock since."""
        self._looked = time.monotonic()
        holder = self._path.read_text()
        if holder != self._name:
            raise LeaseLostError(
                "another run took the folder's lock: the storage gave it away while this one was cut off",
                value=holder,
                fix="nothing: the other run goes on from the newest checkpoint; look why the storage was away",
            )

    def check_now_and_then(self) -> None:
        """The same, at most every LOOK_SECONDS."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self.check()
