"""A training by this machine and others: the first node's agent as a child here, each other's by a command to its host.

The command (by default ssh) runs on_node.py there, which takes all that it needs from the storage that all see, and
leaves there how it ended. It goes on without the command: whether it is wanted it sees by a file that is renewed here,
so that neither a lost connection ends it, nor a dead starter leaves it behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.lifecycle.folder_lock import LOCK, is_free
from trainworthy.lifecycle.nodes.node import Node, own_address
from trainworthy.lifecycle.protocol.jobs import processes_of
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.backend import Ended, Start, Watcher
from trainworthy.resources.backends.local import LOCAL, python_path
from trainworthy.resources.backends.on_node import ALIVE, WANTED, last_line, lock_of, read_end
from trainworthy.resources.backends.signs import Given, ObservedSign
from trainworthy.resources.fork_server import ends_with
from trainworthy.resources.settings import NODE_ADDRESS, NODE_COMMAND, NODES, read_settings, resolved_variables

SSH = "ssh -o BatchMode=yes {host}"
HOW_TO = "docs/how-to/several-processes.md"
# A folder for each start, below the job's.
STARTS = "nodes"
# In it: what the command and the agent's on_node.py write.
OUTPUT = "output.log"
# From the kill of a worker on another node to a free lock of its number.
GONE_SECONDS = 30.0
LOOK_SECONDS = 0.2
# Of the variables of this process these are handed on as they are, besides the project's folders.
HANDED_ON = ("TRAINWORTHY_SPOT_NOTICE", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class NodesBackend:
    """Trains on this machine and on `hosts`, by `command` with {host} in it; `address` is this machine's, "" unnamed.

    A worker of one process is a child here, as without the others.
    """

    hosts: tuple[str, ...]
    command: tuple[str, ...]
    address: str

    name = LOCAL.name
    # The agent here holds it too: if this process is killed, nobody gets the folder before the agent is gone.
    lock = LOCK

    @property
    def memory_bytes(self) -> int:
        """This machine's: all are of one SKU."""
        return LOCAL.memory_bytes

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run. Raises SettingsError without a way to the others, and BackendError if one cannot begin."""
        if processes_of(start.job) == 1:
            return LOCAL.run(start, watcher, tell)
        first = self._first()
        folder = Path(start.job.out) / STARTS
        _end_earlier(folder, start, len(self.hosts), tell)
        with contextlib.ExitStack() as opened:
            others = [
                opened.enter_context(_other(self._command(host), host, replace(first, number=number), start, folder))
                for number, host in enumerate(self.hosts, start=1)
            ]
            ended = LOCAL.run(replace(start, node=first), _Following(watcher, others), tell)
        return _with_memory(ended, [read_end(other.folder) for other in others])

    def _first(self) -> Node:
        """This machine as the first node, with a port that is free now."""
        fix = f"name an address of this machine in {NODE_ADDRESS} by which the other nodes reach it"
        try:
            # As ssh takes it, a user may stand before the host.
            address = self.address or own_address(self.hosts[0].rpartition("@")[2], 1)
        except SettingsError as error:
            raise SettingsError(error.problem, value=error.value, fix=fix) from None
        try:
            family, _, _, _, at = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as free:
                free.bind(at)
                port = free.getsockname()[1]
        except OSError as error:
            raise SettingsError(f"the other nodes cannot meet here: {error.strerror}", value=address, fix=fix) from None
        return Node(0, 1 + len(self.hosts), address, port)

    def _command(self, host: str) -> list[str]:
        return [part.replace("{host}", host) for part in self.command]


class _Other:
    """The agent of another node, as far as it is seen from here."""

    def __init__(
        self, host: str, node: Node, folder: Path, process: subprocess.Popen[bytes], wanted_sign: Given
    ) -> None:
        self.host, self.node, self.folder = host, node, folder
        self._process, self._wanted, self._alive = process, wanted_sign, ObservedSign(folder / ALIVE)
        self._began = False

    def look(self) -> None:
        """Show that it is wanted. Raises BackendError if the command to its host has ended before it began there."""
        self._wanted.give()
        ended = self._process.poll()
        self._began = self._began or self._alive.there() or read_end(self.folder) is not None
        if ended is not None and not self._began:
            fix = (
                f"run {NODE_COMMAND} by hand, with true behind it; then look whether the node sees the project, its "
                f"Python and the state folder under the paths of this machine ({HOW_TO})"
            )
            problem = (
                f"the command to node {self.node.number} ({self.host}) ended with {ended} before anything began there"
            )
            raise BackendError(problem, value=last_line(self.folder / OUTPUT) or None, fix=fix)


class _Following:
    """A watcher that looks after the other nodes as well."""

    def __init__(self, watcher: Watcher, others: Sequence[_Other]) -> None:
        self._watcher, self._others = watcher, others

    def begin(self) -> None:
        self._watcher.begin()

    def waited(self, seconds: float) -> None:
        self._watcher.waited(seconds)

    def look(self) -> None:
        self._watcher.look()
        for other in self._others:
            other.look()


@contextlib.contextmanager
def _other(command: list[str], host: str, node: Node, start: Start, starts: Path) -> Iterator[_Other]:
    """Start the agent of another node by the command to its host; nothing of it is there afterwards."""
    folder = starts / f"{node.number}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    wanted_sign = Given(folder / WANTED)
    wanted_sign.give()
    process = _begun([*command, "sh", "-s"], node, folder / OUTPUT)
    try:
        assert process.stdin is not None
        # By its input, since ssh hands arguments to a shell and others do not. Without a reader the look tells it.
        with contextlib.suppress(BrokenPipeError), process.stdin as given:
            given.write(script(start, node, folder).encode())
        yield _Other(host, node, folder, process, wanted_sign)
    finally:
        wanted_sign.withdraw()
        _wait_until_gone(Path(start.job.out), node, start.grace_seconds)
        process.kill()
        process.wait()


def _begun(command: list[str], node: Node, output: Path) -> subprocess.Popen[bytes]:
    try:
        with output.open("wb") as file:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True,
                preexec_fn=ends_with(os.getpid()),
            )  # fmt: skip
    except OSError as error:
        problem = f"the command to node {node.number} cannot be run: {error.strerror}"
        raise BackendError(problem, value=shlex.join(command), fix=f"correct {NODE_COMMAND}") from None


def script(start: Start, node: Node, folder: Path) -> str:
    """What a shell on the node is given: each word is quoted, whatever is in it."""
    variables = resolved_variables(read_settings())
    variables |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    given = [
        "--folder", str(folder), "--job", str(start.path), "--queued", str(start.queued),
        "--submitted", str(time.time()), "--grace", str(start.grace_seconds),
        "--abandoned", str(on_node.ABANDONED_SECONDS), *node.arguments,
    ]  # fmt: skip
    named = [f"{name}={value}" for name, value in ({"PYTHONPATH": python_path()} | variables).items()]
    return f"exec {shlex.join(['env', *named, sys.executable, '-m', on_node.__name__, *given])}\n"


def _end_earlier(starts: Path, start: Start, other_nodes: int, tell: Callable[[str], None]) -> None:
    """End what an earlier start of this job, whose starter is gone, has left on other nodes."""
    for sign in starts.glob(f"*/{WANTED}"):
        sign.unlink(missing_ok=True)
    nodes = [Node(number, other_nodes + 1) for number in range(1, other_nodes + 1)]
    if any(not is_free(starts.parent, lock_of(node)) for node in nodes):
        tell("an earlier start of this job is still on another node: it is ended first")
    for node in nodes:
        _wait_until_gone(starts.parent, node, start.grace_seconds)
    shutil.rmtree(starts, ignore_errors=True)


def _wait_until_gone(out: Path, node: Node, grace_seconds: float) -> None:
    """Wait until nothing of a node's worker is there, or that takes longer than it may."""
    until = time.monotonic() + grace_seconds + GONE_SECONDS
    while not is_free(out, lock_of(node)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _with_memory(ended: Ended, other_ends: Sequence[on_node.NodeEnd | None]) -> Ended:
    """The end with what another node's kernel has killed for memory, where this one's has not."""
    killed = [end.memory for end in other_ends if end is not None and end.memory.kernel_kills]
    return replace(ended, memory=killed[0]) if killed and not ended.memory.kernel_kills else ended


def nodes_backend(nodes: int) -> NodesBackend:
    """This machine and those of TRAINWORTHY_NODES. Raises SettingsError, with all that is set wrong."""
    hosts = tuple(host for part in os.environ.get(NODES, "").split(",") if (host := part.strip()))
    named = os.environ.get(NODE_COMMAND) or SSH
    problems, fixes = list[str](), list[str]()
    if len(hosts) < nodes - 1:
        problems.append(f"compute.nodes is {nodes}, and {NODES} names {len(hosts)} of the {nodes - 1} beside this one")
        fixes.append(f"name them, separated by commas: {NODES}=10.0.0.6,10.0.0.7")
    if bad := [host for host in hosts if host.startswith("-")]:
        # It would be an option of ssh.
        problems.append(f"{NODES} names no host: {', '.join(bad)}")
        fixes.append("name hosts as ssh knows them")
    try:
        command = tuple(shlex.split(named))
    except ValueError as error:
        command = ()
        problems.append(f"{NODE_COMMAND} is no command: {error}")
        fixes.append("close its quotes")
    if command and not any("{host}" in part for part in command):
        problems.append(f"{NODE_COMMAND} has no {{host}}: it would be the same for all nodes")
        fixes.append(f"write the command that runs another on a host: {NODE_COMMAND}='{SSH}'")
    if problems:
        raise SettingsError("; ".join(problems), value=named if command else None, fix="; ".join(fixes))
    return NodesBackend(hosts[: nodes - 1], command, os.environ.get(NODE_ADDRESS, ""))
