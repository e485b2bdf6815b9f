"""One worker a folder: who waits, who pays for it, and when the lock is free."""

import fcntl
import subprocess
import sys
import threading

import pytest

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.folder_lock import locked


def is_free(folder) -> bool:
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_wait_for_an_equal_run_is_told_and_counted_apart_from_the_bill(tmp_path):
    told, asked, waited = [], threading.Event(), threading.Event()
    meter = Meter()

    def second():
        with locked(tmp_path, lambda line: (told.append(line), asked.set())):
            waited.set()

    with locked(tmp_path, told.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert asked.wait(10)
        assert not waited.wait(0.2)
    thread.join(10)
    assert waited.is_set()
    assert len(told) == 1
    assert "another run does the same work (process " in told[0]
    cost = meter.cost(Sku(usd_per_hour=3600.0))
    assert cost.queue_seconds >= 0.2
    assert cost.usd == pytest.approx(cost.wall_seconds)
    assert Meter().queue_seconds == 0


def test_wait_that_is_ended_by_an_exception_is_counted_too(tmp_path):
    from trainworthy.lifecycle.cost.meter import queued

    meter = Meter()
    with pytest.raises(KeyboardInterrupt), queued():
        raise KeyboardInterrupt
    assert meter.queue_seconds > 0


def test_lock_that_a_child_inherited_is_free_when_both_are_gone(tmp_path):
    with locked(tmp_path, print) as descriptor:
        command = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(descriptor,))
    try:
        # As after a kill of the process that started it.
        assert not is_free(tmp_path)
    finally:
        child.kill()
        child.communicate()
    assert is_free(tmp_path)
