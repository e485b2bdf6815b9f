"""The ranks of several nodes train one model: as those of one node do, to the bit, and with one clear error."""

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from forked_nodes import free_port, run_nodes, told_of, train_by_nodes
from forked_ranks import train_by_ranks
from test_ranks import FAULTS, FORWARD, by_one, job_of, losses
from toy_jobs import changed_use_case, write_job

from trainworthy.lifecycle import torchrun
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_PREEMPTED
from trainworthy.lifecycle.folder_lock import LOCK
from trainworthy.lifecycle.nodes import agreement
from trainworthy.lifecycle.storage.rank_files import read_node

HOST = socket.gethostname()
# Beside those of test_ranks.py: the agent is killed with its rank, or is asked to end.
MORE_FAULTS = FAULTS.replace(
    "            case ",
    '            case "node": os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)\n'
    '            case "agent": os.kill(os.getppid(), signal.SIGTERM)\n            case ',
    1,
)


@pytest.fixture(scope="module")
def faulty(splits, tmp_path_factory) -> Path:
    """The toy with dropout, and faults that the environment asks for."""
    folder = tmp_path_factory.mktemp("faulty")
    use_case = changed_use_case(folder / "toy", (FORWARD, f"{MORE_FAULTS}{FORWARD}        self.fault()\n"))
    # What a training imports is then here, and not imported once more by each fork.
    by_one(job_of(splits, folder / "one", use_case))
    return use_case


def test_two_nodes_train_as_two_ranks_of_one_to_the_bit_and_go_on_after_any_end(splits, faulty, tmp_path, monkeypatch):
    monkeypatch.setattr(torchrun, "GONE_SECONDS", 2.0)
    one = train_by_ranks(job_of(splits, tmp_path / "one", faulty))
    job = job_of(splits, tmp_path / "two", faulty)
    assert run_nodes(job, {"FAULT": "kill"}) == [128 + signal.SIGKILL] * 2
    told = told_of(job)
    assert told["rank"] == 1
    assert told["problem"].startswith(f"rank 1 of 2 (node 1 on {HOST}, process ")
    assert "was killed by SIGKILL in the rows or the forward pass of update " in told["problem"]
    left = read_node(Path(job.out), 1)
    assert left is not None
    assert left.ends[1].exit_code == -signal.SIGKILL
    # The agent goes with its rank, so that nobody there tells anything.
    assert run_nodes(job, {"FAULT": "node"}) == [128 + signal.SIGKILL, -signal.SIGKILL]
    assert told_of(job)["problem"].startswith(f"rank 1 of 2 (node 1 on {HOST}) left no word")
    # The first node's agent is asked to end, and all write the checkpoint.
    assert run_nodes(job, {"FAULT": "agent", "FAULTY": "0"}) == [EXIT_PREEMPTED] * 2
    two = train_by_nodes(job)
    assert two.resumed_from_step > 0
    assert two.parameters_sha256 == one.parameters_sha256
    assert losses(two.curve) == losses(one.curve)
    # What has to fit a machine, where the other rank is not.
    assert two.metrics["peak_memory_bytes"] < 0.8 * one.metrics["peak_memory_bytes"]
    # There is an answer, which each node finds by itself.
    assert run_nodes(job) == [0, 0]


def test_an_error_on_another_node_is_told_with_its_rank_and_node(splits, faulty, tmp_path):
    job = job_of(splits, tmp_path / "out", faulty)
    codes = run_nodes(job, {"FAULT": "raise"})
    assert codes == [70, 70]
    told = told_of(job)
    assert told["problem"] == f"rank 1 of 2 (node 1 on {HOST}): ValueError: shop 7 is unknown"
    assert told["value"].startswith("model.py:")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_hang_on_any_node_is_named_with_its_line_and_ends_all(splits, faulty, tmp_path, rank):
    job = job_of(splits, tmp_path / "out", faulty, collective_timeout_seconds=6.0)
    assert run_nodes(job, {"FAULT": "loop", "FAULTY": str(rank)})[0] == EXIT_HANG
    told = told_of(job)
    assert told["rank"] == rank
    assert told["problem"].startswith(f"rank {rank} of 2 (node {rank} on {HOST}) hangs in the rows or the forward pass")
    assert "in fault" in told["value"]


def test_a_node_with_another_job_or_another_folder_is_refused_before_any_rank_starts(
    splits, faulty, tmp_path, monkeypatch
):
    monkeypatch.setattr(agreement, "LATE_SECONDS", 0.5)
    job = job_of(splits, tmp_path / "out", faulty)
    # A folder of this path on another machine: here it has another one, and the same job but for it.
    other = write_job(job.model_copy(update={"out": str(tmp_path / "copy"), "identity": "another"}))
    assert run_nodes(job, paths={1: other}) == [EXIT_BAD_INPUT] * 2
    assert told_of(job)["problem"] == "node 1 of 2: its file has another job than that of the first node"
    assert run_nodes(job, paths={1: tmp_path / "none.json"}) == [EXIT_BAD_INPUT] * 2
    assert told_of(job)["problem"] == "node 1 of 2: its file holds no training, or is not there"
    shutil.rmtree(Path(job.out) / "ranks")
    assert not list(Path(job.out).glob("checkpoints*"))


def test_a_node_that_sees_an_older_copy_of_the_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "LATE_SECONDS", 0.3)
    (tmp_path / "run").write_text("before")
    assert not agreement.is_same(tmp_path / "run", "now")
    (tmp_path / "run").write_text("now")
    assert agreement.is_same(tmp_path / "run", "now")


def test_a_node_that_does_not_come_and_an_endpoint_that_cannot_be_had_are_told(splits, faulty, tmp_path, capfd):
    job = job_of(splits, tmp_path / "out", faulty, collective_timeout_seconds=0.6)
    path, port = write_job(job), free_port()
    given = ["--job", str(path), "--nodes", "2", "--node-rank", "0", "--endpoint"]
    assert torchrun.main([*given, f"127.0.0.1:{port}"]) == EXIT_HANG
    assert told_of(job)["problem"] == "node 1 of 2 did not come within 1 s"
    assert told_of(job)["value"] == f"127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert torchrun.main([*given, f"127.0.0.1:{taken.getsockname()[1]}"]) == EXIT_BAD_INPUT
        assert "Address already in use" in told_of(job)["problem"]
    # TEST-NET-1, which no machine has.
    assert torchrun.main([*given, "192.0.2.1:29400"]) == EXIT_BAD_INPUT
    assert "cannot listen at the endpoint" in told_of(job)["problem"]
    given[5] = "1"
    assert torchrun.main([*given, f"127.0.0.1:{free_port()}"]) == EXIT_BAD_INPUT
    assert "node 1 finds no first node at 127.0.0.1:" in capfd.readouterr().err
    assert os.access(Path(job.out) / LOCK, os.W_OK)
