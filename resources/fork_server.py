"""Workers that begin with torch already imported.

Of the 4.3 CPU seconds that a stage of few updates takes, 3.7 are imports of other people's packages, the same for each
worker of a run. A server imports them once and forks a child for each job: the second worker of a run takes 0.6. It
imports nothing of ours and nothing of a use case, so that a child is as good as a process of its own, but for one
thing: children share the server's hash seed, and with it the order of sets. What has to show that a result does not
hang on that (promotion's rerun of the first steps) asks for a process of its own.

The server and its child end with whoever started them, by the kernel (PR_SET_PDEATHSIG); where there is no such signal,
and wherever the server cannot be asked, each worker is a process of its own.
`python -m trainworthy.resources.fork_server DESCRIPTOR` serves one socket until its other end is closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# What most workers import before they read their job. An optimizer loads torch's compiler.
IMPORTED = (
    "torch", "torch._dynamo", "torch._inductor.config", "pandas", "pyarrow.parquet", "scipy.special", "psutil",
    "pydantic", "yaml", "dagster_pipes",
    # Of references and baselines: preflight, each stage and evaluation, 0.7 CPU seconds of each.
    "scipy.stats", "sklearn.linear_model",
)  # fmt: skip
# Read by our own code and by Dagster's and MLflow's clients in the child; MLflow's client sets GIT_PYTHON_REFRESH
# between two workers, for a package that the server does not import. Any other variable may be read by what is
# imported already, so a worker that needs another value of one is a process of its own.
READ_LATE = ("TRAINWORTHY_", "DAGSTER_", "MLFLOW_", "PYTEST_", "PYTHONPATH", "GIT_PYTHON_REFRESH")
PR_SET_PDEATHSIG = 1
WORKER = "trainworthy.lifecycle.worker"
# A signal that another thread of this process takes interrupts no wait; Python acts on it after this long at most.
SLICE_SECONDS = 0.2
# An environment of more bytes than this takes a process of its own.
MOST_BYTES = 100_000


class Leader(Protocol):
    """A started worker, as subprocess.Popen is: `wait` raises subprocess.TimeoutExpired."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def start_worker(
    arguments: Sequence[str], environment: Mapping[str, str], lock: int, *, fresh: bool = False,
    output: tuple[int, int] = (1, 2), entry: str = WORKER,
) -> Leader:  # fmt: skip
    """Start `python -m trainworthy.lifecycle.worker --lock LOCK ARGUMENTS` in a session of its own.

    It holds the lock's descriptor, and writes to those of `output`, for stdout and stderr.

    `fresh`: as a process of its own, whatever the server could do. So is another `entry` than the worker.
    """
    server = None if fresh or entry != WORKER else _server(environment)
    forked = None if server is None else server.fork(arguments, environment, lock, output)
    command = [sys.executable, "-m", entry, "--lock", str(lock), *arguments]
    return forked or subprocess.Popen(
        command, env=dict(environment), start_new_session=True, preexec_fn=ends_with(os.getpid()),
        stdin=subprocess.DEVNULL, stdout=output[0], stderr=output[1], pass_fds=(lock,),
    )  # fmt: skip


def ends_with(parent: int) -> Callable[[], None]:
    """A function for a child to run first: the kernel kills it when the thread that started it ends, on Linux."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def run_in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The parent died between fork and prctl.

    return run_in_child


@dataclass
class ForkServer:
    """The server's process and this end of its socket; for the process and the thread that started it."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    environment: Mapping[str, str]
    owner: int = field(default_factory=os.getpid)
    child: Forked | None = None

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], lock: int, output: tuple[int, int]
    ) -> Forked | None:
        """The started child; None if the server works for another, or is gone."""
        if self.child is not None and self.child.poll() is None:
            return None
        request = {"arguments": list(arguments), "environment": dict(environment), "folder": os.getcwd()}
        message = json.dumps(request).encode()
        if len(message) > MOST_BYTES:
            return None
        try:
            socket.send_fds(self.channel, [message], [*output, lock])
            pid = self.channel.recv(64)
        except OSError:
            return None
        except BaseException:
            # Interrupted before anybody knew the child: the server goes, and takes it along.
            self.process.kill()
            raise
        self.child = Forked(int(pid), self.channel) if pid else None
        return self.child


@dataclass
class Forked:
    """A child of the server; its end comes over the socket, with the CPU seconds that it and its children took."""

    pid: int
    channel: socket.socket
    code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative if a signal killed it; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while (code := self._ended(max(0.0, min(SLICE_SECONDS, deadline - time.monotonic())))) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("trainworthy.lifecycle.worker", timeout or 0.0)
        return code

    def _ended(self, timeout: float) -> int | None:
        if self.code is None and select.select([self.channel], [], [], timeout)[0]:
            answer = b""
            with contextlib.suppress(OSError):
                answer = self.channel.recv(64)
            # A server that is gone took its child along.
            # Not at the top: the server imports other people's packages only.
            from trainworthy.lifecycle.cost.meter import count_worker

            code, _, seconds = answer.decode().partition(" ")
            count_worker(float(seconds or 0.0))
            self.code = int(code) if code else -signal.SIGKILL
        return self.code


_started: list[ForkServer] = []


def _server(environment: Mapping[str, str]) -> ForkServer | None:
    """This process's server, started by its first worker; None if this worker cannot be its child."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    alive = [server for server in _started if server.owner == os.getpid() and server.process.poll() is None]
    if not alive:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainworthy.resources.fork_server", str(its.fileno())], env=dict(environment),
                start_new_session=True, preexec_fn=ends_with(os.getpid()), stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
            )  # fmt: skip
        alive = [ForkServer(process, mine, _read_early(environment))]
        _started[:] = alive
    return alive[0] if alive[0].environment == _read_early(environment) else None


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(READ_LATE)}


def main() -> int:
    """Serve until the socket's other end is closed; in a child, the worker's exit code."""
    own = {os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    path = [entry for entry in sys.path if entry not in own]
    for name in IMPORTED:
        # The worker meets the error again, and tells it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # The collector shall not touch, and so copy, what all children share.
    gc.freeze()
    run_first = ends_with(os.getpid())
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        while True:
            request, descriptors, _, _ = socket.recv_fds(channel, 2 * MOST_BYTES, 3)
            if not request:
                return 0
            ready, is_ready = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.setsid()
                run_first()
                os.close(ready)
                break
            os.close(is_ready)
            # Its group is there, and can be killed, before anybody knows its number.
            os.read(ready, 1)
            for descriptor in (ready, *descriptors):
                os.close(descriptor)
            channel.sendall(str(pid).encode())
            _, status, usage = os.wait4(pid, 0)
            ended = f"{os.waitstatus_to_exitcode(status)} {usage.ru_utime + usage.ru_stime:.3f}"
            channel.sendall(ended.encode())
    os.close(is_ready)
    return _work(json.loads(request), descriptors, path)


def _work(request: Mapping[str, Any], descriptors: Sequence[int], path: Sequence[str]) -> int:
    """Become the worker that was asked for, and do its job."""
    import numpy as np
    from setproctitle import setproctitle

    out, error, lock = descriptors
    arguments = ["--lock", str(lock), *request["arguments"]]
    sys.argv[:] = ["trainworthy.lifecycle.worker", *arguments]
    # Whoever looks for workers, a person too, finds it under the name of any other. First, since the title takes the
    # room of the environment that the server was started with.
    setproctitle(" ".join([sys.executable, "-m", *sys.argv]))
    for descriptor, number in ((out, 1), (error, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:] = [request["folder"], *os.environ.get("PYTHONPATH", "").split(os.pathsep), *path]
    # The server has these two packages from where it was started; the worker finds its own.
    for name in ("trainworthy", "trainworthy.resources", "trainworthy.earlier_name"):
        sys.modules.pop(name, None)
    # Drawn anew in each process; Python's own generator sees to itself.
    np.random.seed()
    from trainworthy.lifecycle.worker import main as work

    return work(arguments)


if __name__ == "__main__":
    sys.exit(main())
