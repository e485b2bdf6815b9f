"""Waits for the leader of a process group of its own, and ends the whole group on any way out.

However this process ends, nothing of the group may live on: two trainers at once would waste money
and write each other's files. Left by exception or signal: SIGTERM to the group, a grace period for
the checkpoint, then SIGKILL. Killed itself: the kernel ends the leader (PR_SET_PDEATHSIG, Linux), and
a guard, which waits on a pipe that closes with this process, ends the rest. A process that leaves the
group (setsid) escapes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

from trainworthy.resources.fork_server import Leader

# How often a caller may look at the leader while it lives.
LOOK_SECONDS = 1.0
# The first line is the group; the second `read` returns when the pipe's other end is closed. A shell, since it
# starts in a millisecond and Python in twenty.
_GUARD = 'read -r group; read -r _; kill -s KILL -- "-$group"'


class EndAskedError(Exception):
    """Whoever looks after a group asks for its end. `exit_code` is its leader's then, None if there was none yet."""

    exit_code: int | None = None


def run_group(
    start: Callable[[], Leader], grace_seconds: float, *, look: Callable[[int], None] = lambda leader: None
) -> int:
    """Exit code of what `start` starts, negative if a signal killed it. Its output goes where this process's goes.

    `start` makes the leader of a group that the kernel ends with this thread (fork_server.py). `look` is called with
    the leader's pid every LOOK_SECONDS. Where an EndAskedError ends the wait it tells how the leader ended of it.
    """
    with _guard() as watch:
        leader = start()
        try:
            try:
                watch(leader.pid)
                return _wait(leader, look)
            finally:
                _end_group(leader, grace_seconds)
        except EndAskedError as asked:
            asked.exit_code = leader.wait()
            raise


@contextlib.contextmanager
def _guard() -> Iterator[Callable[[int], None]]:
    """A process that outlives this one just long enough to kill the group that it is told to watch."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Of its own session, so that Ctrl-C in the terminal does not end it first.
        start_new_session=True,
    )
    pipe = guard.stdin
    assert pipe is not None

    def watch(group: int) -> None:
        pipe.write(f"{group}\n".encode())
        pipe.flush()

    try:
        yield watch
    finally:
        # Before its pipe is closed: the group has ended, and its number may be another's by then.
        guard.kill()
        guard.wait()
        pipe.close()


def _wait(leader: Leader, look: Callable[[int], None]) -> int:
    while True:
        look(leader.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return leader.wait(LOOK_SECONDS)


def _end_group(leader: Leader, grace_seconds: float) -> None:
    """SIGTERM to the group, wait for the leader, SIGKILL to what is left, also if a second Ctrl-C ends the wait."""
    try:
        if leader.poll() is None:
            _signal_group(leader.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                leader.wait(grace_seconds)
    finally:
        # Helpers that the leader left behind still belong to its group.
        _signal_group(leader.pid, signal.SIGKILL)
        leader.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
