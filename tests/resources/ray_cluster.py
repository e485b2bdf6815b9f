"""A Ray cluster of a test's own: a head without cores and nodes of one job each, on loopback, in a process of its own.

`python ray_cluster.py FOLDER PORT ROOT` starts the head, then obeys lines of its stdin: `add NAME CORES VARIABLES`,
`kill NAME`, `end NAME`. It ends, with all that it started, when its stdin is closed. Each node has an empty disk at
ROOT, unless that is "".
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

SKU = "local-2cpu"
# Small: no job here keeps anything in Ray's own store.
STORE_BYTES = 100_000_000
# Of unshare(2).
NEW_MOUNTS = 0x20000
# Where Ray notes its newest cluster, whatever its own folder is.
NOTES = Path("/tmp/ray")


class RayCluster:
    """The cluster, by the process that holds it."""

    def __init__(self, folder: Path, root: Path | None = None, variables: Mapping[str, str] | None = None) -> None:
        port = free_port()
        self.address, self.folder = f"http://127.0.0.1:{port}", folder
        # Else Ray looks for the machine's own address and is open to others by it.
        environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        environment |= variables or {}
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(folder), str(port), str(root or "")], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True,
            )  # fmt: skip
        self._answer()

    def add(self, name: str, cores: int = 2, **variables: str) -> str:
        """Start a node, with variables of its own; its id in Ray."""
        return self._do(f"add {name} {cores} {json.dumps(variables)}")

    def kill(self, name: str) -> None:
        """SIGKILL to the processes of a node, as a machine that is gone."""
        self._do(f"kill {name}")

    def end(self, name: str) -> None:
        """SIGTERM to a node, as a machine that is taken away with notice."""
        self._do(f"end {name}")

    def head(self) -> psutil.Process:
        """The process of Ray's dashboard, which answers at `address`."""
        found = [one for one in self.processes() if any("dashboard/dashboard.py" in part for part in _command(one))]
        return found[0]

    def processes(self) -> list[psutil.Process]:
        """All that belong to the cluster and live."""
        return [
            one
            for one in psutil.process_iter()
            if one.pid != os.getpid() and str(self.folder) in " ".join(_command(one) + _environment(one))
        ]

    def stop(self) -> list[psutil.Process]:
        """End it; what had to be killed because it lived on, after a while."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        until = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.2)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return left

    def _do(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("done "):
                return line.removeprefix("done ").strip()
        raise AssertionError((self.folder / "log").read_text()[-4000:])


def free_port() -> int:
    """A port of loopback that nobody has just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _environment(process: psutil.Process) -> list[str]:
    try:
        return [f"{name}={value}" for name, value in process.environ().items()]
    except psutil.Error:
        return []


@contextlib.contextmanager
def ray_cluster(root: Path | None = None, variables: Mapping[str, str] | None = None) -> Iterator[RayCluster]:
    """A running head; skips where Ray is not installed. Asserts that nothing of it is left.

    With a `root` each node has an empty disk there. Head and nodes have the variables.
    """
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: make test-engines installs it")
    # Short, since Ray's sockets lie below it, and no path of a socket may be long.
    folder = Path(tempfile.mkdtemp(prefix="tw-ray-"))
    notes = NOTES.exists()
    NOTES.mkdir(exist_ok=True)
    cluster = RayCluster(folder, root, variables)
    try:
        yield cluster
    finally:
        left = cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
        if not notes:
            shutil.rmtree(NOTES, ignore_errors=True)
    assert not left


def empty_from_here(root: str) -> None:
    """What this thread starts from here on finds an empty disk there, as nothing that it started before does."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(NEW_MOUNTS) == 0, os.strerror(ctypes.get_errno())
    for command in (["--make-rprivate", "/"], ["-t", "tmpfs", "none", root]):
        subprocess.run(["mount", *command], check=True)


def hold(folder: Path, port: int, root: str) -> None:
    """The process that holds the cluster."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    os.environ["TRAINWORTHY_TEST_RAY"] = str(folder)
    common = {"object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1", "include_log_monitor": False}
    # Else each asks for the same one, which another cluster of this machine may have.
    agent = "dashboard_agent_listen_port"
    head = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": port, "temp_dir": str(folder)}
    cluster = Cluster(initialize_head=True, head_node_args=common | head | {agent: free_port()})
    nodes = {}
    print("done head", flush=True)
    for line in sys.stdin:
        what, name, *more = line.split(maxsplit=3)
        if what == "add":
            variables = json.loads(more[1])
            os.environ.update(variables)
            if root:
                empty_from_here(root)
            given = common | {agent: free_port(), "num_cpus": int(more[0]), "resources": {SKU: 1, name: 1}}
            node = cluster.add_node(wait=True, **given)
            for variable in variables:
                os.environ.pop(variable)
            nodes[name] = node
            told = node.node_id
        else:
            cluster.remove_node(nodes.pop(name), allow_graceful=what == "end")
            told = ""
        print(f"done {told}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    # Ctrl-C in the terminal is the test's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hold(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
