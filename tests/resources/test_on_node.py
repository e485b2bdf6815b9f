"""What runs beside the worker on a node: it starts it, is told whether it is still wanted, and says how it ended."""

import contextlib
import errno
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.nodes.node import Node
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.meeting import INDEX, FolderMeeting, prepare
from trainworthy.resources.backends.on_node import NodeEnd, _AskedToEndError, _OnNode, read_end

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def started(folder: Path, *, wanted: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """on_node as a process, on a job that need not come as far as its rows."""
    job = toy_jobs.write_job(toy_jobs.train_job(folder, folder / "out"))
    if wanted:
        (folder / "wanted").write_text(str(time.time_ns()))
    given = ["--folder", folder, "--job", job, "--queued", "0", "--submitted", str(time.time()), "--grace", "1"]
    command = [sys.executable, "-m", "trainworthy.resources.backends.on_node", *map(str, given)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as process:
        try:
            yield process
        finally:
            process.kill()


def worker_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in psutil.Process(process.pid).children():
            if "trainworthy.lifecycle.worker" in child.cmdline():
                return child
        time.sleep(0.02)
    raise AssertionError("no worker within 60 s")


def is_gone(process: psutil.Process) -> bool:
    until = time.monotonic() + 10
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_killed_worker_is_told_with_its_signal_and_what_was_seen_of_memory(tmp_path):
    with started(tmp_path) as process:
        worker = worker_of(process)
        assert (tmp_path / "alive").exists()
        worker.kill()
        assert process.wait(60) == 137
    end = read_end(tmp_path)
    assert end is not None
    # Of the worker, which is gone: it had imported its modules at least.
    assert end.cpu_seconds > 0
    assert end.exit_code == -signal.SIGKILL
    assert end.memory.limit_bytes is not None


@pytest.mark.parametrize("way", ["no longer wanted", "SIGTERM"])
def test_worker_that_is_asked_to_end_is_gone_and_its_end_says_who_asked(tmp_path, way):
    with started(tmp_path) as process:
        worker = worker_of(process)
        # It leaves no word of its own.
        worker.suspend()
        if way == "SIGTERM":
            process.terminate()
        else:
            (tmp_path / "wanted").unlink()
        assert process.wait(60) == 143
    assert is_gone(worker)
    end = read_end(tmp_path)
    assert end is not None
    assert end.exit_code == -signal.SIGTERM
    assert way in end.seen


def test_worker_ends_with_what_started_it_and_no_earlier_word_is_taken_for_its_own(tmp_path):
    (tmp_path / "end.json").write_text('{"exit_code": 0}')
    assert read_end(tmp_path) is not None
    with started(tmp_path) as process:
        worker = worker_of(process)
        process.kill()
        assert is_gone(worker)
    assert read_end(tmp_path) is None


def test_worker_that_is_not_wanted_does_not_begin(tmp_path):
    with started(tmp_path, wanted=False) as process:
        assert process.wait(60) == 143
    assert not (tmp_path / "out" / ".lock").exists()
    end = read_end(tmp_path)
    assert end is not None
    assert "no longer wanted" in end.seen


def test_starter_that_is_silent_for_long_is_taken_for_gone_and_asked_once(tmp_path):
    (tmp_path / "wanted").write_text(str(time.time_ns()))
    following = _OnNode(tmp_path, abandoned_seconds=0.1)
    following.look()
    (tmp_path / "wanted").write_text("2")
    following.look()
    time.sleep(0.2)
    with pytest.raises(_AskedToEndError, match="no sign of life"):
        following.look()
    # A second one would cut the grace short.
    following.stop(signal.SIGTERM, None)


def test_file_that_is_no_job_is_refused(tmp_path):
    given = ["--folder", tmp_path, "--job", tmp_path / "none", "--queued", 0, "--submitted", 0, "--grace", 1]
    assert on_node.main([str(one) for one in given]) == 65


@pytest.mark.parametrize(("code", "told"), [(75, 75), (0, 0), (65, 65), (137, -15), (-9, -15), (-15, -15), (None, -15)])
def test_worker_that_was_asked_to_end_ends_by_its_own_word_if_it_has_one(code, told):
    asked = _AskedToEndError("no longer wanted")
    asked.exit_code = code
    assert on_node._code_of_asked(asked) == told


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Runs on_node in this process, on a worker that is told by what it ends; gives its exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # It is held until the process is gone, which is not to be this one.
    monkeypatch.setattr(on_node.os, "dup", lambda descriptor: descriptor)

    def run(ends_by: int, *given: object, seen: str = "") -> int:
        job = toy_jobs.write_job(toy_jobs.train_job(tmp_path, tmp_path / "out"))
        monkeypatch.setattr(on_node.LOCAL.__class__, "run", lambda *_: Ended(ends_by, MemorySeen(), seen))
        asked = ["--folder", tmp_path, "--job", job, "--queued", 0, "--submitted", 0, "--grace", 1, *given]
        return on_node.main([str(one) for one in asked])

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("code", [0, 75])
def test_exit_code_is_the_workers_although_its_end_cannot_be_left(tmp_path, monkeypatch, capsys, here, code):
    def away(path: Path, content: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    (tmp_path / "wanted").write_text(str(time.time_ns()))
    monkeypatch.setattr(on_node, "write_atomic", away)
    assert here(code) == code
    assert "end.json could not be left, and the exit code tells the end" in "".join(capsys.readouterr())


def test_signal_after_the_end_is_heard_by_who_waits_for_it(tmp_path, monkeypatch, here):
    (tmp_path / "wanted").write_text(str(time.time_ns()))
    heard: list[int] = []
    monkeypatch.setattr(on_node, "_leave", lambda *_: signal.raise_signal(signal.SIGTERM))
    main = functools.partial(on_node.main, afterwards=lambda number, frame: heard.append(number))
    monkeypatch.setattr(on_node, "main", main)
    assert here(75) == 75
    signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize(
    ("number", "code", "passes"), [(errno.EROFS, 74, False), (errno.ESTALE, 74, True), (errno.ENOSPC, 73, False)]
)
def test_folder_that_cannot_be_used_at_the_start_is_one_error_by_its_own_exit_code(
    tmp_path, monkeypatch, capsys, here, number, code, passes
):
    def away(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / "out"))

    (tmp_path / "wanted").write_text(str(time.time_ns()))
    monkeypatch.setattr(on_node, "locked", away)
    assert here(0) == code
    told = json.loads((tmp_path / "out" / "error.json").read_text())
    assert (os.strerror(number) in told["problem"], told["value"], told["passes"]) == (
        True,
        str(tmp_path / "out"),
        passes,
    )
    assert "Traceback" not in "".join(capsys.readouterr())


def sign(folder: Path, ahead: float) -> None:
    """Given now, by a clock that is so many seconds ahead of this one's."""
    (folder / "wanted").write_text(str(time.time_ns() + int(ahead * 1e9)))


@pytest.mark.parametrize(("ahead", "apart"), [(3600, "3600 s behind"), (-3600, "3600 s ahead of")])
def test_node_whose_clock_is_another_than_its_launchers_is_one_error_before_anything_begins(
    tmp_path, capsys, here, ahead, apart
):
    sign(tmp_path, ahead)
    # An hour ago a sign may really have been given: the next one tells.
    timer = threading.Timer(0.5, sign, (tmp_path, ahead))
    timer.start()
    assert here(0) == 65
    timer.join()
    told = json.loads((tmp_path / "out" / "error.json").read_text())
    assert told["problem"] == f"the clock of this node is {apart} that of its launcher"
    # By ssh its starter sees the last line alone.
    assert apart in "".join(capsys.readouterr()).strip().splitlines()[-1]
    assert not (tmp_path / "alive").exists()


@pytest.mark.parametrize("torn", ["", "176"])
def test_sign_that_is_just_being_made_hides_no_other_clock(tmp_path, here, torn):
    (tmp_path / "wanted").write_text(torn)
    threading.Timer(0.5, sign, (tmp_path, 3600)).start()
    assert here(0) == 65


def test_sign_that_never_says_a_time_is_told_and_no_error(tmp_path, monkeypatch, capsys, here):
    (tmp_path / "wanted").write_text("wanted")
    monkeypatch.setattr(on_node, "SIGN_SECONDS", 0.1)
    assert here(0) == 0
    assert "the clock of this node is not compared" in "".join(capsys.readouterr())


def test_refusal_is_left_once_no_earlier_worker_has_the_folder_any_more(tmp_path, monkeypatch, here):
    sign(tmp_path, 3600)
    out, beside = tmp_path / "out", list[tuple[bool, bool]]()
    out.mkdir()
    with (out / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def earlier_ends(seconds: float) -> None:
            beside.append(((out / "error.json").exists(), (tmp_path / "alive").exists()))
            fcntl.flock(other, fcntl.LOCK_UN)

        monkeypatch.setattr("trainworthy.lifecycle.folder_lock.time.sleep", earlier_ends)
        assert here(0) == 65
    assert beside == [(False, False)]
    assert "the clock of this node" in json.loads((out / "error.json").read_text())["problem"]


def test_sign_that_is_old_is_no_other_clock(tmp_path, here):
    sign(tmp_path, -90)
    threading.Timer(0.5, sign, (tmp_path, 0)).start()
    assert here(0) == 0


def test_launcher_that_has_gone_is_no_other_clock(tmp_path, here):
    sign(tmp_path, -90)
    assert here(0, "--abandoned", 0.5) == 143
    end = read_end(tmp_path)
    assert end is not None
    assert "no sign of life" in end.seen


@pytest.mark.parametrize(("behind", "waited"), [(0, 5), (20, 25), (-20, 25)])
def test_wait_for_a_machine_is_at_least_what_the_launchers_own_clock_says(tmp_path, behind, waited):
    """`behind`: of this clock. One that is ahead tells a longer wait, by a minute at most."""
    sign(tmp_path, behind)
    since = _OnNode(tmp_path).submitted(time.time() - 5 - max(0, -behind))
    assert time.time() - since == pytest.approx(waited, abs=2)


def test_wait_for_the_folder_ends_when_the_worker_is_no_longer_wanted(tmp_path, monkeypatch, here):
    (tmp_path / "wanted").write_text(str(time.time_ns()))
    (tmp_path / "out").mkdir()
    # What takes the sign away is the second look of the wait.
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        (tmp_path / "wanted").unlink(missing_ok=True)

    monkeypatch.setattr("trainworthy.lifecycle.folder_lock.time.sleep", wait)
    with (tmp_path / "out" / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        # Who waits in the kernel is not heard any more: better a test that ends.
        timer = threading.Timer(20, lambda: fcntl.flock(other, fcntl.LOCK_UN))
        timer.start()
        assert here(0) == 143
        timer.cancel()
    assert len(waits) == 1
    end = read_end(tmp_path)
    assert end is not None
    assert "no longer wanted" in end.seen


@pytest.mark.parametrize(
    ("number", "code", "seen", "waits"),
    [(1, 77, "", True), (1, 0, "", False), (1, -15, "by SIGTERM", False), (0, 77, "", False)],
)
def test_node_that_ended_badly_by_itself_lets_the_first_one_judge(
    tmp_path, monkeypatch, here, number, code, seen, waits
):
    prepare(start := tmp_path / "start", 2)
    (start / str(number) / "wanted").write_text(str(time.time_ns()))
    monkeypatch.setenv(INDEX, str(number))
    monkeypatch.setattr(FolderMeeting, "node", lambda *_: Node(number, 2, "127.0.0.2", 4000))
    monkeypatch.setattr(on_node, "LOOK_SECONDS", 0.001)
    # Its word comes at the third look.
    asked: list[Path] = []

    def read(folder: Path):
        # What this node leaves is there before it waits.
        assert (start / str(number) / "end.json").exists()
        asked.append(folder)
        return NodeEnd(exit_code=65) if len(asked) == 3 else None

    monkeypatch.setattr(on_node, "read_end", read)
    assert here(code, "--folder", start, "--nodes-of-job", 2, seen=seen) == (code if code >= 0 else 128 - code)
    assert asked == [start / "0"] * (3 if waits else 0)
