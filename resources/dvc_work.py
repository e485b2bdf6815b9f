"""The lock and the temporary workspaces of whoever builds or copies a dataset on this state folder."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.cost.meter import queued


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """One builder or copier at a time on this state folder; the lock goes with its process."""
    path = state / "dvc" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that fetches or builds a dataset ...")
            with queued():
                fcntl.flock(file, fcntl.LOCK_EX)
        # Whoever holds the lock is alone: workspaces still there belong to killed processes.
        shutil.rmtree(state / "dvc" / "work", ignore_errors=True)
        yield


@contextlib.contextmanager
def workspace(state: Path) -> Iterator[Path]:
    """A temporary folder on the state folder's file system."""
    base = state.resolve() / "dvc" / "work"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as work:
        yield Path(work)


def say(line: str) -> None:
    """A line for whoever waits at the terminal."""
    print(line, file=sys.stderr, flush=True)
