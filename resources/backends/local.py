"""Workers as child processes of this machine: one, or by torchrun several that train together."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.folder_lock import LOCK
from trainworthy.lifecycle.memory_limit import memory_limit_bytes
from trainworthy.lifecycle.protocol.jobs import processes_of
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.backends.backend import ENVIRONMENT, SIGNALLED, TORCHRUN, Ended, Start, Watcher
from trainworthy.resources.fork_server import start_worker
from trainworthy.resources.memory_usage import MemoryWatch
from trainworthy.resources.process_group import run_group
from trainworthy.resources.settings import own_python_path


class LocalBackend:
    """Child processes, which the kernel ends with this one (process_group.py)."""

    name = "local"
    # The worker holds it too: if this process is killed, nobody gets the folder before the worker is gone.
    lock = LOCK

    @property
    def memory_bytes(self) -> int:
        """What this process may use; where there is no /proc, the machine's."""
        import psutil

        return memory_limit_bytes() or psutil.virtual_memory().total

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run: the exit code is the child's, and its memory as this machine tells it."""
        memory, several, out = MemoryWatch(), start.module == TORCHRUN, Path(start.job.out)
        given = ["--queued", str(start.queued), "--job", str(start.path)]
        given += [] if start.submitted is None else ["--submitted", str(start.submitted)]
        given += ["--packages", start.packages] if start.packages else []
        given += start.node.arguments
        mine = start.node.ranks(processes_of(start.job))
        environment = {**ENVIRONMENT, **os.environ, **start.environment, "PYTHONPATH": python_path()}
        begin = functools.partial(
            start_worker, given, environment, start.lock, fresh=start.fresh, output=start.output, entry=start.module
        )

        def look(leader: int) -> None:
            memory.look(*([place.pid for place in read_places(out, mine).values()] if several else [leader]))
            watcher.look()

        code = run_group(begin, start.grace_seconds, look=look)
        if several and code > SIGNALLED:
            # It lives on to say by which signal a rank was killed.
            code = SIGNALLED - code
        return Ended(code, memory.seen())


def python_path() -> str:
    """Of the worker: it shall import the Trainworthy that started it. An installed one is found by any process."""
    return os.pathsep.join(part for part in (own_python_path(), os.environ.get("PYTHONPATH", "")) if part)


LOCAL = LocalBackend()
