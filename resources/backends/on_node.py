"""Runs a worker on the node that a scheduler chose, as it would run on the starter's own machine.

`python -m trainworthy.resources.backends.on_node --folder FOLDER --job JOB …` takes the lock of the job's folder,
starts the worker as a child (local.py) and says in FOLDER/end.json how it ended and what was seen of this node's
memory. So the truth about the end comes from beside the worker, over the storage that both machines see, and not from
the scheduler.

Of a training by several nodes that the first one's launcher has started (nodes.py), it runs the agent of another node,
beside the worker that holds the folder: the lock that it takes is that of its own number.

With `--nodes-of-job N` it is one of N nodes that a cluster chose (meeting.py): its number is given, or a pod's index in
its Job; FOLDER has a folder for each, and none begins before all are there.

The worker is wanted as long as the file FOLDER/wanted lies there and changes now and then. If it is taken away, or this
process is asked to end, the worker has its grace for a checkpoint, and its exit code is this process's; if this process
is killed, the kernel kills it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from trainworthy.lifecycle.error_causes import PASSING_ERRNOS, storage_errno
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_DISK_FULL, EXIT_STORAGE, MemorySeen
from trainworthy.lifecycle.folder_lock import LOCK, locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.nodes.node import Node, add_arguments, node_of
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import AnyJob
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.worker import read_job
from trainworthy.resources.backends.backend import SIGNALLED, Ended, Start
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.backends.meeting import FolderMeeting, meeting_of
from trainworthy.resources.backends.signs import Given, ObservedSign
from trainworthy.resources.memory_usage import MemoryWatch
from trainworthy.resources.process_group import EndAskedError

# In the folder of one start.
WANTED, ALIVE, END = "wanted", "alive", "end.json"
# The locks of other nodes than the first, by their numbers.
OTHER_LOCKS = ".node*.lock"
# And what it wrote, where nobody else keeps that.
STDOUT, STDERR = "stdout", "stderr"
# Whoever wants the worker is gone after so long without a sign: a day's training shall not be paid for nobody.
ABANDONED_SECONDS = 600.0
# So long another node waits for the word of the first, which has a minute for its own; between two looks.
FIRST_SECONDS, LOOK_SECONDS = 90.0, 0.2
# So long a sign may say no time, as a few beats of its giver.
SIGN_SECONDS = 30.0
# How far two clocks may be apart. Below that a wait is told a minute wrong at most; above it the budget, what records
# say of times and how long a bucket takes a signed request for a fresh one are wrong as well.
CLOCK_SECONDS = 60.0
# What a worker that is asked to end ends by where it has no word of its own: the request, or the end of its grace.
_OF_REQUEST = (-signal.SIGTERM, -signal.SIGKILL)


class NodeEnd(Frozen):
    """How a worker ended on a node: as backend.Ended."""

    exit_code: int
    memory: MemorySeen = MemorySeen()
    seen: str = ""
    cpu_seconds: float = 0.0


class _AskedToEndError(EndAskedError):
    """The worker is no longer wanted; the message says how that is known."""


class _OnNode:
    """Follows the worker on its node; a Watcher."""

    def __init__(self, folder: Path, abandoned_seconds: float = ABANDONED_SECONDS) -> None:
        self._wanted, self._alive = ObservedSign(folder / WANTED), Given(folder / ALIVE)
        self._abandoned_seconds, self._asked = abandoned_seconds, False

    def begin(self) -> None: ...

    def waited(self, seconds: float) -> None: ...

    def look(self) -> None:
        """Give a sign of life. Raises _AskedToEndError if the worker is no longer wanted."""
        self._alive.give()
        self.expect_wanted()

    def expect_wanted(self) -> None:
        """Raises _AskedToEndError if the worker is no longer wanted."""
        if not self.is_wanted():
            self._end("it is no longer wanted by whoever started it")
        if (silent := self._wanted.silent_seconds()) > self._abandoned_seconds:
            self._end(f"whoever started it has given no sign of life for {silent:.0f} s")

    def is_wanted(self) -> bool:
        """False once the sign of its starter is taken away."""
        return self._wanted.there()

    def submitted(self, submitted: float) -> float:
        """Since when a machine is waited for, by this one's clock: that of its starter is read off the sign.

        Raises SettingsError if the two are more than CLOCK_SECONDS apart.
        """
        until = time.monotonic() + SIGN_SECONDS
        # A sign that is just being made is empty, and on a file server for longer.
        while (given_at := self._wanted.given_at()) is None:
            self.expect_wanted()
            if time.monotonic() > until:
                say(f"{WANTED} says no time, so the clock of this node is not compared with that of its launcher")
                return submitted
            time.sleep(LOOK_SECONDS)
        ahead = time.time() - given_at
        if ahead > CLOCK_SECONDS:
            # Or the sign is that old: the next one tells.
            while (now_given := self._wanted.given_at() or given_at) == given_at:
                self.expect_wanted()
                time.sleep(LOOK_SECONDS)
            given_at, ahead = now_given, time.time() - now_given
        if abs(ahead) > CLOCK_SECONDS:
            apart = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of its launcher"
            fix = (
                f"let NTP set the clock of {socket.gethostname()}, which is {apart}, or the launcher's; then run again"
            )
            raise SettingsError(f"the clock of this node is {apart}", value=socket.gethostname(), fix=fix)
        # The starter had waited at least until it gave the sign, whatever this clock says.
        return min(submitted, time.time() - (given_at - submitted))

    def stop(self, number: int, frame: FrameType | None) -> None:
        """A signal asks for the end, also while this waits."""
        self._end(f"its node was asked to end it by {signal.Signals(number).name}")

    def _end(self, why: str) -> None:
        # Once: a second signal would cut the grace short.
        if not self._asked:
            self._asked = True
            raise _AskedToEndError(why)


def main(
    arguments: list[str] | None = None,
    afterwards: Callable[[int, FrameType | None], object] | signal.Handlers = signal.SIG_IGN,
) -> int:
    """Run one job's worker to its end; returns its exit code, 128 and its number for a signal.

    `afterwards` is what SIGTERM and SIGINT do once the worker has ended, and there is nothing left to end.
    """
    parser = argparse.ArgumentParser(prog="trainworthy.resources.backends.on_node", description="Runs a worker here.")
    parser.add_argument("--folder", type=Path, required=True, help="folder of this start, below the job's")
    parser.add_argument("--job", type=Path, required=True, help="path of job.json")
    parser.add_argument("--queued", type=float, required=True, help="seconds that the job's folder was waited for")
    parser.add_argument("--submitted", type=float, required=True, help="Unix time since when a node is waited for")
    parser.add_argument("--grace", type=float, required=True, help="seconds from being asked to end to being killed")
    parser.add_argument(
        "--abandoned", type=float, default=ABANDONED_SECONDS, help="seconds without a sign to go on for"
    )
    parser.add_argument("--packages", default="", help="versions, as JSON, that whoever starts this counts on here")
    parser.add_argument("--nodes-of-job", type=int, default=1, help="nodes of a cluster's job, of which this is one")
    parser.add_argument("--number", default="", help="of this one, 0 the first; a pod knows its own")
    parser.add_argument("--address", default="", help="by which the others reach it; a pod knows its own")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    job, node = read_job(options.job), node_of(options)
    if job is None:
        return EXIT_BAD_INPUT
    try:
        with _refusal_left(job, node):
            meeting = meeting_of(options.folder, options.nodes_of_job, options.number, options.address)
        return _run(options, job, node, meeting, afterwards)
    except SettingsError as error:
        # Of the clock, or of the meeting: nothing has begun.
        say(str(error))
        return EXIT_BAD_INPUT
    except OSError as error:
        # Storage that is away or full: no fault of the job's.
        problem = f"the job's folder cannot be used on this node: {error.strerror or error}"
        value, fix = str(error.filename or job.out), "see that the node has the storage mounted, writable and with room"
        passes = storage_errno(error) in PASSING_ERRNOS
        _leave(Path(job.out) / "error.json", {"problem": problem, "value": value, "fix": fix, "passes": passes})
        say(f"{problem}\n  value: {value}\n  fix: {fix}")
        return EXIT_DISK_FULL if error.errno == errno.ENOSPC else EXIT_STORAGE


def _run(
    options: argparse.Namespace, job: AnyJob, node: Node, meeting: FolderMeeting | None,
    afterwards: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> int:  # fmt: skip
    """Run the worker to its end, and leave how it ended. Raises SettingsError for another clock,
    or if nodes cannot meet.
    """
    folder = options.folder if meeting is None else meeting.folder
    following, memory = _OnNode(folder, options.abandoned), MemoryWatch()
    # Of a pod that was there before, in whose place this one is.
    (folder / END).unlink(missing_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, following.stop)
    try:
        with _refusal_left(job, node, following.expect_wanted):
            # Before anything says that it has begun.
            submitted = following.submitted(options.submitted)
            following.look()
            if meeting is not None:
                node = meeting.node(following.look)
        with locked(Path(job.out), say, lock_of(node), following.look) as lock:
            # Held until this process is gone, so that whoever finds it free finds nobody.
            os.dup(lock)
            # While it was waited for.
            following.look()
            start = Start(
                job=job, path=options.job, queued=options.queued, environment={}, output=(1, 2),
                grace_seconds=options.grace, fresh=True, lock=lock, submitted=submitted, node=node,
                packages=options.packages,
            )  # fmt: skip
            ended = LOCAL.run(start, following, say)
    except _AskedToEndError as error:
        ended = Ended(_code_of_asked(error), memory.seen(), seen=str(error))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, afterwards)
    end = NodeEnd(exit_code=ended.exit_code, memory=ended.memory, seen=ended.seen, cpu_seconds=_children_cpu_seconds())
    _leave(folder / END, end.model_dump(mode="json"))
    if meeting is not None:
        meeting.leave()
        if ended.exit_code and not ended.seen and not node.first:
            _after_the_first(options.folder / "0", following.is_wanted)
    return SIGNALLED - ended.exit_code if ended.exit_code < 0 else ended.exit_code


@contextlib.contextmanager
def _refusal_left(job: AnyJob, node: Node, look: Callable[[], None] | None = None) -> Iterator[None]:
    """Leaves a SettingsError in the job's folder, once that is held: an earlier worker of it may be there yet."""
    try:
        yield
    except SettingsError as error:
        with locked(Path(job.out), say, lock_of(node), look):
            error_report = {"problem": error.problem, "value": error.value, "fix": error.fix}
            _leave(Path(job.out) / "error.json", error_report)
        raise


def _leave(path: Path, content: object) -> None:
    """Write what others read once this is over; storage that is away does not change how it ended."""
    try:
        write_atomic(path, canonical_json(content))
    except OSError as error:
        say(f"{path.name} could not be left, and the exit code tells the end: {error}")


def _children_cpu_seconds() -> float:
    """Of the worker, and of its ranks: it has waited for them as this has for it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _after_the_first(folder: Path, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Wait until the first node has said how all ended, but not for ever: with this one's end the cluster ends it.

    A SIGTERM says that the cluster has done so already, and a sign that is gone that nobody waits for a word.
    """
    until, ended = time.monotonic() + FIRST_SECONDS, threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    while read_end(folder) is None and time.monotonic() < until and is_wanted() and not ended.wait(LOOK_SECONDS):
        pass


def _code_of_asked(error: EndAskedError) -> int:
    """Its own where the worker had a word left; else as if it had got the signal, after which a training goes on."""
    code = -signal.SIGTERM if error.exit_code is None else error.exit_code
    code = SIGNALLED - code if code > SIGNALLED else code
    return -signal.SIGTERM if code in _OF_REQUEST else code


def lock_of(node: Node) -> str:
    """The file in the job's folder whose lock is held while anything of a node's worker is there."""
    return LOCK if node.first else OTHER_LOCKS.replace("*", str(node.number))


def read_end(folder: Path) -> NodeEnd | None:
    """How the worker of a start ended, if it has; its group is gone then."""
    try:
        return NodeEnd.model_validate_json((folder / END).read_bytes())
    except (OSError, ValidationError):
        return None


def last_line(path: Path) -> str:
    """The last line of a file that is not empty; "" if there is none."""
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    sys.exit(main())
