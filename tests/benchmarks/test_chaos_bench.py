"""What the chaos benchmark finds by: two attempts at once, processes that live on, and a cause that is another's."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import chaos
from benchmarks.chaos import Census, Hit, _Hitter, _processes
from benchmarks.chaos_faults import FAULTS, RANKS, Fault, Target
from trainworthy.lifecycle.storage.rank_files import _PLACE, PlaceFile

EVERY = [fault for faults in FAULTS.values() for fault in faults]


@pytest.fixture
def started(tmp_path):
    """Starts processes whose command is that of a rank of the training in the folder."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(folder: str = "hit") -> subprocess.Popen[bytes]:
        named = ["trainworthy.lifecycle.worker", "--job", str(tmp_path / folder / "job.json")]
        processes.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *named]))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("more", "other", "doubles"), [(0, 2, False), (1, 0, True)])
def test_ranks_of_two_attempts_at_once_are_counted_and_those_of_another_training_are_not(
    tmp_path, started, more, other, doubles
):
    for _ in range(RANKS + more):
        started()
    for _ in range(other):
        started("quiet")
    with Census(cast(Any, SimpleNamespace(out=str(tmp_path / "hit")))) as census:
        until = time.monotonic() + 60
        while not census.looks and time.monotonic() < until:
            time.sleep(0.05)
    assert census.looks
    assert (census.doubles > 0) is doubles


def test_process_that_lives_on_is_found_until_it_is_gone(tmp_path, started):
    job, process = cast(Any, SimpleNamespace(out=str(tmp_path / "hit"))), started()
    assert set(_processes(job)) == {process.pid}
    process.kill()
    # Also before anybody has waited for it.
    until = time.monotonic() + 10
    while _processes(job) and time.monotonic() < until:
        time.sleep(0.05)
    assert _processes(job) == {}


@pytest.fixture
def hitter(tmp_path):
    """Hits two ranks of the folder by `do`; with the pids that they are said to have."""
    job = cast(Any, SimpleNamespace(out=str(tmp_path / "hit")))

    def hit(pids: list[int], do: Callable[[Target], None]) -> _Hitter:
        target = Target(tmp_path / "hit", cast(Any, None))
        found = _Hitter(job, target, Fault("any", do, "killed"), 0.01, None)
        for rank, pid in enumerate(pids):
            PlaceFile(target.out, rank)
            path = target.out / "ranks" / f"{rank}.place"
            path.write_bytes(_PLACE.pack(pid, 1, 0, 0, time.monotonic()))
        return found

    return hit


def ended(hitter: _Hitter) -> bool:
    """True once it has nothing more to do, within a minute."""
    hitter.join(60)
    return not hitter.is_alive()


def test_ranks_that_train_are_hit_and_their_processes_remembered_as_they_were_before(started, hitter):
    ranks = [started() for _ in range(RANKS)]
    found = hitter([rank.pid for rank in ranks], lambda target: ranks[0].kill())
    assert ended(found)
    found.end()
    assert found.hit
    assert found.pids == {rank.pid for rank in ranks}
    assert ranks[0].wait(10)


def test_attempt_that_makes_no_update_is_not_hit(monkeypatch, hitter):
    monkeypatch.setattr(chaos, "UPDATE_SECONDS", 0.2)
    done = list[Target]()
    found = hitter([], done.append)
    assert ended(found)
    found.end()
    assert (found.hit, done) == (False, [])


def test_attempt_that_ended_by_itself_is_not_hit_nor_who_has_its_pids(hitter):
    done = list[Target]()
    # These live, and are no processes of the training.
    found = hitter([os.getpid(), os.getppid()], done.append)
    time.sleep(0.5)
    found.end()
    assert (found.hit, done) == (False, [])


def test_fault_that_cannot_be_done_is_an_error_of_the_benchmark(started, hitter):
    ranks = [started() for _ in range(RANKS)]
    found = hitter([rank.pid for rank in ranks], lambda target: {}["no pod"])
    assert ended(found)
    with pytest.raises(KeyError, match="no pod"):
        found.end()


def test_every_fault_has_a_name_of_its_own_and_is_told_right_by_its_cause_and_words_alone():
    assert len({(launcher, fault.name) for launcher, faults in FAULTS.items() for fault in faults}) == len(EVERY)
    for fault in EVERY:
        told = f"the worker stopped: {fault.told} …"
        assert Hit(fault, fault.cause, told, 0).right
        assert not Hit(fault, "bug", told, 0).right
        assert Hit(fault, fault.cause, "the worker stopped", 0).right is not bool(fault.told)
