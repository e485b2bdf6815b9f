"""The worker's process group ends with the process that started it, however that one ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from trainworthy.resources.fork_server import ends_with
from trainworthy.resources.process_group import EndAskedError, run_group

ROOT = Path(__file__).parents[2]
# A leader with a child of its own; the files `leader` and `child` appear when they run. argv: folder, what they
# do with SIGTERM, this text.
LEADER = """
import pathlib, signal, subprocess, sys, time
folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
if mode == "deaf":
    signal.signal(signal.SIGTERM, lambda number, frame: (folder / "asked").write_text(""))
if mode != "child":
    subprocess.Popen([sys.executable, "-c", sys.argv[3], str(folder), "child", sys.argv[3]])
    (folder / "leader").write_text("")
else:
    (folder / "child").write_text("")
if mode == "leaves":
    while not (folder / "child").exists():
        time.sleep(0.01)
    sys.exit(3)
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(1)
"""
PARENT = """
import os, subprocess, sys
from trainworthy.resources.fork_server import ends_with
from trainworthy.resources.process_group import run_group
command = [sys.executable, "-c", sys.argv[2], *sys.argv[3:], sys.argv[2]]
def start():
    return subprocess.Popen(command, start_new_session=True, preexec_fn=ends_with(os.getpid()))
if __name__ == "__main__":
    run_group(start, float(sys.argv[1]))
"""
# As an executor with threads does: the kernel's signal follows the thread that started the leader.
PARENT_IN_THREAD = (
    PARENT.replace('"__main__"', '"in a thread"')
    + """
import threading
thread = threading.Thread(target=run_group, args=(start, float(sys.argv[1])))
thread.start()
thread.join()
"""
)


def run_command(command, grace_seconds, look=lambda leader: None, pass_fds=()):
    """The command as leader of a group."""

    def start():
        return subprocess.Popen(
            command, start_new_session=True, preexec_fn=ends_with(os.getpid()), pass_fds=pass_fds
        )  # fmt: skip

    return run_group(start, grace_seconds, look=look)


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def alive(folder):
    """Processes that name the folder in their command line, without this test's parent process."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cmdline():
                found.append(process)
    return found


@pytest.fixture
def started(tmp_path):
    """Starts a parent that runs the leader in a group; ends what is left afterwards."""
    parents = []

    def start(mode, grace_seconds, parent=PARENT):
        command = [sys.executable, "-c", parent, str(grace_seconds), LEADER, str(tmp_path), mode]
        parents.append(
            subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True)
        )
        until(lambda: (tmp_path / "leader").exists() and (tmp_path / "child").exists())
        return parents[-1]

    yield start
    for process in alive(tmp_path):
        with contextlib.suppress(psutil.Error):
            process.kill()
    for parent in parents:
        parent.wait(10)


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 65", 65), ("kill -s KILL $$", -signal.SIGKILL)])
def test_group_command_that_ends_gives_its_exit_code(command, code):
    assert run_command(["/bin/sh", "-c", command], 1.0) == code


@pytest.mark.parametrize(
    ("command", "code"),
    [("trap 'exit 75' TERM; while :; do sleep 0.05; done", 75), ("exec sleep 60", -signal.SIGTERM)],
)
def test_group_that_is_asked_to_end_tells_how_its_leader_did(command, code):
    looks = []

    def look(leader: int) -> None:
        looks.append(leader)
        if len(looks) > 1:
            raise EndAskedError

    with pytest.raises(EndAskedError) as asked:
        run_command(["/bin/sh", "-c", command], 30.0, look)
    assert asked.value.exit_code == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["obeys", "deaf"])
def test_group_parent_that_is_signalled_leaves_nobody(started, tmp_path, number, mode):
    started(mode, 1).send_signal(number)
    until(lambda: not alive(tmp_path))


def test_group_started_in_a_thread_ends_with_its_process(started, tmp_path):
    started("deaf", 1, PARENT_IN_THREAD).send_signal(signal.SIGKILL)
    until(lambda: not alive(tmp_path))


def test_group_leader_is_looked_at_while_it_lives(tmp_path):
    seen = []
    with (tmp_path / "file").open("w") as file:
        # Not by a shell: dash knows descriptors of one digit only.
        write = f"import os, time; os.write({file.fileno()}, b'told'); time.sleep(1.5)"
        command = [sys.executable, "-c", write]
        assert run_command(command, 1.0, seen.append, (file.fileno(),)) == 0
    assert (tmp_path / "file").read_text() == "told"
    assert len(seen) >= 2
    assert len(set(seen)) == 1


def test_group_second_interrupt_during_the_grace_leaves_nobody(started, tmp_path):
    parent = started("deaf", 60)
    parent.send_signal(signal.SIGINT)
    until((tmp_path / "asked").exists)
    parent.send_signal(signal.SIGINT)
    until(lambda: not alive(tmp_path))


def test_group_leader_that_leaves_a_child_behind_ends_it_too(tmp_path):
    command = [sys.executable, "-c", LEADER, str(tmp_path), "leaves", LEADER]
    assert run_command(command, 1.0) == 3
    until(lambda: not alive(tmp_path))


def test_group_that_ended_leaves_no_guard(tmp_path):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    run_command(["/bin/sh", "-c", "true"], 1.0)
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
