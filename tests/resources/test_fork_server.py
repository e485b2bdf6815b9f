"""Workers that are forked with torch already imported: as good as processes of their own, and gone with their run."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.resources import fork_server
from trainworthy.resources.fork_server import Forked, start_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each worker is a process of its own")
ROOT = Path(__file__).parents[2]
# Stands for trainworthy.lifecycle.worker in a folder of its own. It writes what a worker sees, and does what the job's
# name says.
WORKER = """
import os, pathlib, random, sys, time
def main(arguments):
    out = pathlib.Path(arguments[arguments.index("--job") + 1])
    import numpy as np
    seen = [os.getpid(), os.getpgid(0), os.getcwd(), os.environ.get("TRAINWORTHY_MARK"), sys.argv[0]]
    seen += [float(np.random.rand()), random.random(), hash("text")]
    seen += ["torch" in sys.modules, os.fstat(int(arguments[1])).st_ino]
    out.with_suffix(".tmp").write_text(repr(seen))
    out.with_suffix(".tmp").rename(out)
    print("told on stdout", flush=True)
    while "works" in out.name and time.process_time() < 0.5:
        sum(range(1000))
    while "waits" in out.name:
        time.sleep(0.05)
    return 65 if "fails" in out.name else 0
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the worker above, and empty packages for a server to import: runs of the product have real ones."""
    for name in {name.partition(".")[0] for name in fork_server.IMPORTED}:
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "trainworthy" / "lifecycle").mkdir(parents=True)
    for name in ("__init__.py", "lifecycle/__init__.py"):
        (tmp_path / "trainworthy" / name).touch()
    (tmp_path / "trainworthy" / "lifecycle" / "worker.py").write_text(WORKER)
    (tmp_path / "trainworthy" / "resources").symlink_to(ROOT / "resources")
    monkeypatch.setattr(fork_server, "_started", [])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for server in fork_server._started:
        server.channel.close()
        if server.child is not None and server.child.code is None:
            server.process.kill()
        server.process.wait(60)


def environment(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", **more}


def begun(place: Path, name: str, *, fresh: bool = False, **more: str):
    with (place / "lock").open("w") as lock:
        leader = start_worker(["--job", str(place / name)], environment(place, **more), lock.fileno(), fresh=fresh)
    until((place / name).exists)
    return leader, ast.literal_eval((place / name).read_text())


def test_workers_of_a_run_are_forked_and_see_what_a_process_of_their_own_would(place, capfd):
    (first, one), (lock,) = begun(place, "first", TRAINWORTHY_MARK="1"), [(place / "lock").stat().st_ino]
    assert first.wait(60) == 0
    second, two = begun(place, "second", TRAINWORTHY_MARK="2")
    assert second.wait(60) == 0
    assert isinstance(first, Forked)
    assert isinstance(second, Forked)
    assert capfd.readouterr().out.count("told on stdout") == 2
    for leader, seen, mark in ((first, one, "1"), (second, two, "2")):
        assert seen[:5] == [leader.pid, leader.pid, os.getcwd(), mark, "trainworthy.lifecycle.worker"]
        assert seen[8:] == [True, lock]
    # Drawn anew by numpy and Python; the order of sets is the server's.
    assert one[5] != two[5]
    assert one[6] != two[6]
    assert one[7] == two[7]


def test_cpu_seconds_of_a_forked_worker_are_those_of_its_run(place):
    meter = Meter()
    worker, _ = begun(place, "works")
    assert isinstance(worker, Forked)
    assert worker.wait(60) == 0
    assert meter.cost(Sku(usd_per_hour=1.0)).cpu_seconds > 0.5


def test_worker_that_has_to_be_fresh_shares_nothing_not_even_the_order_of_sets(place):
    forked, one = begun(place, "forked")
    assert forked.wait(60) == 0
    fresh, other = begun(place, "fresh", fresh=True)
    assert fresh.wait(60) == 0
    assert isinstance(fresh, subprocess.Popen)
    assert other[7] != one[7]
    assert other[8] is False


@pytest.mark.parametrize(("name", "number", "code"), [("fails", 0, 65), ("waits", signal.SIGKILL, -signal.SIGKILL)])
def test_end_of_a_forked_worker_is_told_and_the_next_one_starts(place, name, number, code):
    leader, _ = begun(place, name)
    if number:
        assert leader.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            leader.wait(0.1)
        os.killpg(leader.pid, number)
    assert leader.wait(60) == leader.poll() == code
    after, _ = begun(place, "after")
    assert isinstance(after, Forked)
    assert after.wait(60) == 0


def test_worker_is_found_under_the_name_of_its_job(place):
    leader, _ = begun(place, "waits")
    command = psutil.Process(leader.pid).cmdline()
    assert "trainworthy.lifecycle.worker" in command
    assert str(place / "waits") in command
    os.killpg(leader.pid, signal.SIGKILL)
    leader.wait(60)


def test_workers_that_cannot_be_forked_are_processes_of_their_own(place):
    busy, _ = begun(place, "waits")
    assert isinstance(busy, Forked)
    others = [begun(place, "beside")[0], begun(place, "threads", OMP_NUM_THREADS="7")[0]]

    def in_thread():
        # To its end: the kernel ends it with the thread.
        others.append(begun(place, "thread")[0])
        others[-1].wait(60)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    os.killpg(busy.pid, signal.SIGKILL)
    busy.wait(60)
    others.append(begun(place, "long", TRAINWORTHY_MARK="x" * 110_000)[0])
    (server,) = fork_server._started
    server.process.kill()
    server.process.wait(60)
    assert [(type(leader), leader.wait(60)) for leader in others] == [(subprocess.Popen, 0)] * 4
    again, _ = begun(place, "again")
    assert isinstance(again, Forked)
    assert again.wait(60) == 0


class Interrupted:
    """A socket on which Ctrl-C comes while the child's number is waited for."""

    def __init__(self, channel):
        self.channel = channel

    def __getattr__(self, name):
        return getattr(self.channel, name)

    def recv(self, size):
        raise KeyboardInterrupt


def test_start_that_is_interrupted_leaves_neither_worker_nor_server(place):
    first, _ = begun(place, "first")
    assert first.wait(60) == 0
    (server,) = fork_server._started
    server.channel = Interrupted(server.channel)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(KeyboardInterrupt):
        begun(place, "waits")
    assert server.process.wait(30) == -signal.SIGKILL
    after, _ = begun(place, "after")
    assert isinstance(after, Forked)
    assert after.wait(60) == 0


def test_server_that_is_killed_takes_its_worker_along(place):
    leader, _ = begun(place, "waits")
    (server,) = fork_server._started
    server.process.kill()
    assert leader.wait(60) == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(leader.pid) or psutil.Process(leader.pid).status() == psutil.STATUS_ZOMBIE)


def test_server_and_worker_end_with_the_process_that_started_them(place):
    code = f"""
import os, sys, time
from trainworthy.resources.fork_server import _started, start_worker
with open({str(place / "lock")!r}, "w") as lock:
    leader = start_worker(["--job", {str(place / "waits")!r}], dict(os.environ), lock.fileno())
print(leader.pid, _started[0].process.pid, flush=True)
time.sleep(100)
"""
    starter = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(place), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert starter.stdout is not None
    # The worker writes on the same stdout, and may be first.
    line = next(line for line in iter(starter.stdout.readline, "") if not line.startswith("told"))
    pids = [int(word) for word in line.split()]
    until((place / "waits").exists)
    starter.kill()
    starter.communicate()

    def alive(pid):
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False

    until(lambda: not any(map(alive, pids)))
