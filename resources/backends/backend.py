"""The contract of whatever starts a worker: it is started once, waited for, and gone when the wait ends.

All that a worker is asked and answers lies in its job's folder, which it and its starter see under one path; what a
backend adds is a process somewhere and the truth about its end. Who goes on, and how often, is decided by neither
(lifecycle/failure.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.nodes.node import ALONE, Node
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob, processes_of

# Threads that wait actively starve each other on a busy machine: the full stage of flights took 13 s on an idle one
# and 130 s under load. Below level 6 torch's profiler writes a line on stderr for each start and stop. A crash of
# native code leaves its stack on stderr.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "KINETO_LOG_LEVEL": "6", "PYTHONFAULTHANDLER": "1"}
WORKER = "trainworthy.lifecycle.worker"
TORCHRUN = "trainworthy.lifecycle.torchrun"
# By which launchers of equal jobs take turns where the worker takes the folder's own lock by itself.
LAUNCH_LOCK = ".launch.lock"
# What a shell and a container's runtime add to a signal's number to make an exit code of it.
SIGNALLED = 128


@dataclass(frozen=True)
class Start:
    """A worker to be started for the job in the file `path`, job.json of its folder.

    `queued` are seconds that were waited for the folder, `environment` what is added for it (ENVIRONMENT is what it has
    besides, unless its machine says otherwise), `output` descriptors for what it writes on stdout and stderr. It has
    `grace_seconds` from being asked to end to being killed. `fresh`: it shares nothing with workers before it. `lock`
    holds the folder (Backend.lock). `submitted` is the Unix time since when it waits for a machine, None if
    it has one. `node` is where it runs among those that train together. `packages` are the versions that its launcher
    counts on there, as JSON, "" for those of one machine.
    """

    job: AnyJob
    path: Path
    queued: float
    environment: Mapping[str, str]
    output: tuple[int, int]
    grace_seconds: float
    fresh: bool
    lock: int
    submitted: float | None = None
    node: Node = ALONE
    packages: str = ""

    @property
    def module(self) -> str:
        """What is run as `python -m`: the worker, or what starts one for each of several processes."""
        return TORCHRUN if processes_of(self.job) > 1 else WORKER


@dataclass(frozen=True)
class Ended:
    """How a worker ended: its exit code, negative the number of a signal, and what was seen of its memory.

    `seen` is what the machines' owner says of an end that the worker did not choose, as half a sentence. `cpu_seconds`
    are those that it used where this machine's kernel counts none of them.
    """

    exit_code: int
    memory: MemorySeen
    seen: str = ""
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Size:
    """What one attempt of a training has: so many `machines` of those asked for, `of`, and `processes` over them."""

    machines: int
    of: int
    processes: int

    @property
    def share(self) -> float:
        """Of the machines that are asked for."""
        return self.machines / self.of

    def ends_at(self, ends_at: float | None, now: float) -> float | None:
        """When it has spent what all machines would have spent at that Unix time."""
        return ends_at if ends_at is None or self.machines == self.of else now + (ends_at - now) / self.share


class Watcher(Protocol):
    """Who follows a worker: `begin` before it is started (what it raises prevents that), `look` about every second.

    `waited` is told the seconds that it has waited for a machine so far, which are nobody's cost: while it waits, and
    last when it begins.
    """

    def begin(self) -> None: ...
    def look(self) -> None: ...
    def waited(self, seconds: float) -> None: ...


@runtime_checkable
class Elastic(Protocol):
    """A backend by which a training may go on with fewer machines than it asks for."""

    def size_of(self, job: TrainJob, tell: Callable[[str], None]) -> Size:
        """What the next attempt has, told where that is not all. Raises a TrainworthyError if nobody can say."""
        ...


class Backend(Protocol):
    """Runs workers on one kind of machine.

    `name` is how compute.launcher calls it. `lock` is the file by which starts of equal jobs take turns: the worker's
    own, whose descriptor it is handed, or that of the starters alone, where the worker takes its own by itself.
    """

    @property
    def name(self) -> str: ...

    @property
    def lock(self) -> str: ...

    @property
    def memory_bytes(self) -> int:
        """What a worker may use, which is not always what its SKU says."""
        ...

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """Start the worker, wait for its end and say how it ended. `watcher.begin` was called.

        On any other way out (an exception, a cancel) nothing of the worker lives on. Raises a TrainworthyError if it
        cannot be started at all.
        """
        ...
