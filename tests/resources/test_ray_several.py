"""A training over several nodes of Ray, without Ray: what is asked, and whose end counts."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED, MemorySeen
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends import ray, ray_entry, ray_jobs
from trainworthy.resources.backends.backend import Ended, Start
from trainworthy.resources.backends.choose import backend_of
from trainworthy.resources.backends.on_node import NodeEnd
from trainworthy.resources.backends.ray_ends import all_free
from trainworthy.resources.backends.ray_jobs import (
    NO_FOLDER,
    NO_NODES,
    JobSnapshot,
    Node,
    end_without_word,
    request,
)
from trainworthy.resources.backends.ray_nodes import (
    JUDGE_SECONDS,
    TaskEnd,
    could_not_begin,
    judged_of_nodes,
    seconds_for_the_others,
)
from trainworthy.resources.settings import RAY_ADDRESS, RAY_FOLDER

LOST_NODE = "Task failed because the node it was running on is dead or unavailable."
NODE = Node(cpus=4, gpus=2, resources={"ec2-l4": 1})


def start_of(out: Path, processes: int = 2, device: str = "cuda") -> Start:
    job = toy_jobs.train_job(out, out, processes=processes, device=device)
    return Start(job, out / "job.json", 1.5, {}, (1, 2), 10.0, False, 0)


# What is asked of Ray


def test_job_by_several_nodes_asks_for_nothing_itself_and_its_entry_for_a_bundle_on_each(tmp_path):
    asked = request(start_of(tmp_path, processes=4), NODE, "id", tmp_path / "ray" / "id", {}, 7.0, nodes=2)
    assert not [name for name in asked if name.startswith("entrypoint_")]
    assert '--nodes 2 --bundle \'{"CPU":4,"GPU":2,"ec2-l4":1}\'' in asked["entrypoint"]
    assert "--submitted 7.0 --grace 10.0 --nodes-of-job 2" in asked["entrypoint"]
    # Two processes on each node, which have four cores there.
    assert asked["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "2"
    assert int(asked["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) > 10 + ray_entry.MARGIN_SECONDS
    on_cpu = request(start_of(tmp_path, device="cpu"), NODE, "id", tmp_path, {}, 7.0, nodes=2)
    assert '{"CPU":4,"ec2-l4":1}' in on_cpu["entrypoint"]


@pytest.mark.parametrize(("nodes", "where"), [(1, f"the node {socket.gethostname()}"), (2, "the head of Ray")])
def test_machine_that_does_not_see_the_folder_says_so_and_is_no_preemption(tmp_path, monkeypatch, nodes, where):
    monkeypatch.setattr(ray_jobs, "SEEN_SECONDS", 1)
    folder = tmp_path / "of a $team"
    line = request(start_of(tmp_path), NODE, "id", folder, {}, 7.0, nodes=nodes)["entrypoint"]
    done = subprocess.run(["/bin/sh", "-c", line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (NO_FOLDER, f"{where} does not see {folder}\n")
    with pytest.raises(BackendError, match="could not begin") as refused:
        end_without_word(JobSnapshot("i", "FAILED", exit_code=NO_FOLDER, message=done.stdout), False, "")
    assert f"{where} does not see" in str(refused.value.value)
    # It sees the folder, and nobody wants the job any more.
    folder.mkdir()
    assert subprocess.run(["/bin/sh", "-c", line], check=False).returncode == EXIT_PREEMPTED


def test_wait_for_nodes_in_vain_is_told_in_the_entrys_words():
    job = JobSnapshot("i", "FAILED", exit_code=NO_NODES, error="JOB_ENTRYPOINT_COMMAND_ERROR", message="exit code 69")
    assert not job.leaves_its_end
    with pytest.raises(BackendError, match="had no node for the job in the time") as refused:
        end_without_word(job, False, "2 nodes, each with 4 CPU")
    assert refused.value.value == "2 nodes, each with 4 CPU"
    assert "RAY_JOB_START_TIMEOUT_SECONDS" in refused.value.fix


def test_launcher_ray_has_nodes_each_with_its_part_of_the_processes(monkeypatch, tmp_path):
    monkeypatch.setenv(RAY_ADDRESS, "http://10.0.0.5:8265/")
    monkeypatch.delenv(RAY_FOLDER, raising=False)
    found = backend_of(ComputeSpec(launcher="ray", sku="local-2cpu", processes=4, nodes=2, loaders=1))
    assert isinstance(found, ray.RayBackend)
    assert (found.nodes, found.node.cpus) == (2, 3)
    # Preflight, evaluation and what promotion measures are one process.
    assert [found.nodes_of(start_of(tmp_path, processes=processes).job) for processes in (1, 4)] == [1, 2]


def test_lock_of_any_node_keeps_a_start_from_being_gone(tmp_path):
    from trainworthy.lifecycle.folder_lock import locked

    assert all_free(tmp_path)
    for name in (".lock", ".node1.lock", ray_entry.LOCK):
        with locked(tmp_path, print, name):
            assert not all_free(tmp_path)
    assert all_free(tmp_path)


def test_line_of_a_node_that_is_longer_than_what_is_copied_at_a_time_holds_nothing_up(tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "CHUNK", 16)
    with (tmp_path / "copy").open("wb") as copy, ray._copied(tmp_path / "out", copy.fileno(), "node 1: ") as more:
        (tmp_path / "out").write_bytes(b"x" * 40 + b"\nsecond\n")
        more()
        assert (tmp_path / "copy").read_bytes() == b"node 1: " + b"x" * 40 + b"\nnode 1: second\n"
        with (tmp_path / "out").open("ab") as out:
            out.write(b"10%\r20%\rthird")
        more()
        assert (tmp_path / "copy").read_bytes().endswith(b"node 1: 10%\rnode 1: 20%\r")
    assert (tmp_path / "copy").read_bytes().endswith(b"node 1: third")


def test_lines_of_another_node_come_whole_and_with_its_number(tmp_path):
    with (tmp_path / "copy").open("wb") as copy, ray._copied(tmp_path / "out", copy.fileno(), "node 1: ") as more:
        (tmp_path / "out").write_bytes(b"one\ntw")
        more()
        assert (tmp_path / "copy").read_bytes() == b"node 1: one\n"
        with (tmp_path / "out").open("ab") as out:
            out.write(b"o\nthree")
        more()
    assert (tmp_path / "copy").read_bytes() == b"node 1: one\nnode 1: two\nnode 1: three"


def test_entry_that_runs_and_does_not_hold_its_nodes_is_a_wait(tmp_path):
    class Running:
        def job(self, id: str) -> JobSnapshot:
            return JobSnapshot("i", "RUNNING")

    following = ray._Following(Running(), "i", tmp_path, several=True)  # pyright: ignore[reportArgumentType]
    assert following.look() is None
    assert following.pending
    (tmp_path / "held").touch()
    assert following.look() is None
    assert not following.pending


# Whose end counts

DIED = TaskEnd(lost=LOST_NODE, reason=2, reason_words="missed too many heartbeats")
TAKEN = TaskEnd(lost=LOST_NODE, reason=1, reason_words="received SIGTERM")
CRASHED = TaskEnd(lost="The worker died unexpectedly")
MEMORY = TaskEnd(lost="Task was killed due to the node running low on memory.")
ASKED = NodeEnd(exit_code=-15, seen="it is no longer wanted")


@pytest.mark.parametrize(
    ("ends", "words", "asked", "ended"),
    [
        ((TaskEnd(0), TaskEnd(0)), (NodeEnd(exit_code=0), None), "", Ended(0, MemorySeen())),
        # The first one judges, where it is there to.
        ((TaskEnd(65), TaskEnd(77)), (NodeEnd(exit_code=65), None), "", Ended(65, MemorySeen())),
        ((TaskEnd(0), DIED), (NodeEnd(exit_code=0), None), "", Ended(0, MemorySeen())),
        # Of a node without a word Ray knows more than the first.
        ((TaskEnd(137), DIED), (NodeEnd(exit_code=-9), None), "", (-9, "node 1 of 2: its node died; Ray said: missed")),
        ((TaskEnd(137), TAKEN), (NodeEnd(exit_code=-9), None), "", (-15, "node 1 of 2: its node was taken away")),
        ((DIED, TaskEnd(77)), (None, NodeEnd(exit_code=77)), "", (-9, "node 0 of 2: its node died")),
        ((TaskEnd(143), DIED), (ASKED, None), "", (-9, "node 1 of 2: its node died")),
        ((CRASHED, TaskEnd(77)), (None, None), "", (-9, "what started it on the node ended first; Ray said: The wor")),
        # A node that is taken away is the reason, although another one died with it.
        ((DIED, TAKEN), (None, None), "", (-15, "node 1 of 2: its node was taken away")),
        # One that refused before they met, for whose sake the other was ended.
        ((TaskEnd(143), TaskEnd(65)), (ASKED, None), "", (65, "it was node 1 of 2")),
        # Somebody asked all of them, with a checkpoint or without.
        ((TaskEnd(75), TaskEnd(75)), (NodeEnd(exit_code=75, seen="x"), None), "stopped", (75, "stopped")),
        ((TaskEnd(143), TaskEnd(lost="late")), (ASKED, None), "stopped", (-15, "stopped")),
    ],
)  # fmt: skip
def test_end_of_all_is_the_first_nodes_judgement_or_that_of_a_node_that_is_gone(ends, words, asked, ended):
    found = judged_of_nodes(ends, words, asked)
    if isinstance(ended, Ended):
        assert found == ended
    else:
        assert found.exit_code == ended[0]
        assert ended[1] in found.seen


def test_kill_by_rays_memory_monitor_ran_out_of_memory_wherever_it_was():
    found = judged_of_nodes((TaskEnd(137), MEMORY), (NodeEnd(exit_code=-9), None), "")
    assert (found.exit_code, found.memory.kernel_kills) == (-9, 1)
    assert "running low on memory" in found.seen


def test_node_on_which_nothing_began_is_no_end_of_a_training():
    assert (
        could_not_begin((TaskEnd(143), TaskEnd(127)), (True, False), ("", "no such python"))
        == "node 1 of 2: no such python"
    )
    assert "node 0 of 2: [Errno 2]" in could_not_begin(
        (TaskEnd(lost="[Errno 2]"), TaskEnd(143)), (False, False), ("", "")
    )
    # What on_node.py says itself, a node that died, and what had begun are ends.
    for end in (TaskEnd(65), TaskEnd(74), DIED, MEMORY):
        assert could_not_begin((TaskEnd(143), end), (True, False), ("", "words")) == ""
    assert could_not_begin((TaskEnd(1), TaskEnd(77)), (True, True), ("words", "")) == ""


def test_others_are_let_judge_but_not_where_nobody_would():
    assert seconds_for_the_others({1: TaskEnd(65)}, met=False, first_word=False) == 0
    assert seconds_for_the_others({0: DIED}, met=True, first_word=False) == 0
    assert seconds_for_the_others({0: TaskEnd(137)}, met=True, first_word=True) == JUDGE_SECONDS
    assert seconds_for_the_others({1: DIED}, met=True, first_word=False) == JUDGE_SECONDS


def test_node_that_did_not_end_in_its_grace_is_told_so_and_not_in_words_of_ray():
    ended = TaskEnd(runs=True).ended()
    assert (ended.exit_code, ended.seen) == (-signal.SIGKILL, "it did not end in its grace, and was killed")
