"""A training over several nodes of a real Ray cluster of this machine, which Ray holds all at once."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planted_training import in_training, planted
from ray_cluster import SKU, RayCluster, ray_cluster
from ray_workers import (
    Watched,
    at_step,
    begun_by_a_launcher_that_is_killed,
    held,
    is_left,
    node_of,
    processes_of,
    workers_of,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.errors import BackendError, WorkerError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_client import RayClient
from trainworthy.resources.backends.ray_jobs import ENTRY, ON_NODE, Node, id_prefix
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
# Of 24 updates, so that what is done at the fifth comes before the end.
SLOWLY = in_training("    time.sleep(0.4)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(variables={"RAY_JOB_START_TIMEOUT_SECONDS": "20"}) as running:
        for name in ("first", "second"):
            running.add(name, TRAINWORTHY_TEST_NODE=name)
        yield running


def backend(cluster: RayCluster, **resources: float) -> RayBackend:
    return RayBackend(cluster.address, Node(cpus=1, resources=resources or {SKU: 1}), 2**30, nodes=2)


def job_of(splits: Any, folder: Path, *edits: tuple[str, str], device: str = "cpu") -> TrainJob:
    job = planted(splits, folder, *edits, stage="smoke", device=device)
    return job.model_copy(update={"processes": 2})


def test_two_nodes_of_ray_train_as_two_processes_here_do_bit_for_bit(cluster, splits, tmp_path):
    ours, theirs = (job_of(splits, tmp_path / name) for name in ("a", "b"))
    here = run_worker(ours)
    lines, watched = list[str](), Watched()
    meter, own = Meter(), time.process_time()
    with (tmp_path / "err").open("wb") as err:
        output = (err.fileno(), err.fileno())
        there = run_worker(theirs, backend=backend(cluster), tell=lines.append, watcher=watched, output=output)
    # Of both nodes, on each of which torch was imported.
    assert meter.cost(Sku(usd_per_hour=0.0)).cpu_seconds - (time.process_time() - own) > 2
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert there.curve == here.curve
    assert lines == [f"waits for 2 nodes of Ray at {cluster.address} each with 1 CPU, 1 of '{SKU}'"]
    assert 0 < watched.seconds[-1] < there.seconds.queue + 10
    assert "loss" in (tmp_path / "err").read_text()
    assert [one.status for one in RayClient(cluster.address).jobs(id_prefix(theirs))] == ["SUCCEEDED"]
    assert is_left(cluster, theirs) == []


@pytest.fixture(scope="module")
def quiet(splits, tmp_path_factory) -> TrainResult:
    """The same by two processes of this machine, which nothing happens to."""
    answer = run_worker(job_of(splits, tmp_path_factory.mktemp("quiet")))
    assert isinstance(answer, TrainResult)
    return answer


def test_nodes_and_ranks_that_go_are_named_and_the_training_goes_on_on_the_nodes_that_are_there(
    cluster, splits, tmp_path, quiet
):
    job = job_of(splits, tmp_path, SLOWLY)

    def gone(way: str, number: int) -> None:
        getattr(cluster, way)(node_of(job, number))
        cluster.add(f"after-{way}", TRAINWORTHY_TEST_NODE=f"after-{way}")

    happens = {
        5: lambda: gone("kill", 1),
        10: lambda: os.kill(read_places(Path(job.out))[1].pid, signal.SIGKILL),
        15: lambda: gone("end", 0),
    }

    def attempt():
        step = min(happens, default=100)
        watched = at_step(job, step, lambda: happens.pop(step)())
        return run_worker(job, backend=backend(cluster), watcher=watched, tell=print)

    answer = supervise(job, attempt, print)
    assert isinstance(answer, TrainResult)
    died, killed, ended = answer.attempts
    assert [one.cause for one in answer.attempts] == ["killed", "killed", "preempted"]
    assert "node 1 of 2: its node died" in died.told
    assert "rank 1 of 2 (node 1 on " in killed.told
    assert "node 0 of 2: its node was taken away" in ended.told
    assert answer.resumed_from_step >= 15
    assert answer.parameters_sha256 == quiet.parameters_sha256
    assert is_left(cluster, job) == []


def test_entry_that_is_killed_takes_all_nodes_along(cluster, splits, tmp_path):
    job = job_of(splits, tmp_path, SLOWLY)

    def kill() -> None:
        (entry,) = processes_of(job, ENTRY)
        # Of Ray's driver only Ray is there, and no library that would take a device or its memory.
        assert not [one.path for one in entry.memory_maps() if "torch" in one.path]
        entry.kill()

    with pytest.raises(WorkerError, match="what started it on the node ended first") as caught:
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, kill))
    assert caught.value.cause == "killed"
    assert is_left(cluster, job) == []


def test_cancel_leaves_no_process_no_job_and_no_group_and_a_checkpoint(cluster, splits, tmp_path):
    job = job_of(splits, tmp_path, SLOWLY)

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, cancel), grace_seconds=10)
    assert is_left(cluster, job) == []
    assert "checkpoint is written" in toy_jobs.error_of(job)["problem"]


def test_somebody_who_stops_the_job_in_ray_is_told_as_preempted_with_its_checkpoint(cluster, splits, tmp_path):
    job = job_of(splits, tmp_path, SLOWLY)

    def stop() -> None:
        ray = RayClient(cluster.address)
        ray.stop(*[one.id for one in ray.jobs(id_prefix(job)) if not one.over])

    with pytest.raises(WorkerError, match="its job of Ray was stopped by somebody else") as caught:
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, stop))
    assert caught.value.cause == "preempted"
    assert "checkpoint is written" in caught.value.problem
    assert is_left(cluster, job) == []


def test_nodes_that_are_not_there_are_waited_for_told_once_and_a_cancel_or_rays_limit_leaves_nothing(
    cluster, splits, tmp_path
):
    job, lines, looks = job_of(splits, tmp_path), list[str](), list[str]()

    def cancel() -> None:
        looks.extend(state for state in held(cluster) if lines)
        if len(looks) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster, late=1), tell=lines.append, watcher=Watched(cancel))
    assert set(looks) == {"PENDING"}
    assert lines == [f"waits for 2 nodes of Ray at {cluster.address} each with 1 CPU, 1 of 'late'"]
    assert is_left(cluster, job) == []
    with pytest.raises(BackendError, match="Ray had no node for the job in the time") as refused:
        run_worker(job, backend=backend(cluster, late=1))
    assert "2 nodes, each with" in str(refused.value.value)
    assert is_left(cluster, job) == []


def test_node_on_which_nothing_can_begin_is_named_and_ends_the_others(cluster, splits, tmp_path, monkeypatch):
    monkeypatch.setattr("trainworthy.resources.backends.ray_jobs.ON_NODE", "trainworthy.no_such_module")
    monkeypatch.setattr("trainworthy.resources.backends.ray.LATE_SECONDS", 1.0)
    job = job_of(splits, tmp_path)
    with pytest.raises(BackendError, match="could not begin on the node") as refused:
        run_worker(job, backend=backend(cluster))
    assert "node 0 of 2" in str(refused.value.value)
    assert "no_such_module" in str(refused.value.value)
    assert is_left(cluster, job) == []


OTHER_ADDRESS = """
import sys
from trainworthy.resources.backends.on_node import main
sys.exit(main([*sys.argv[1:], *(["--address", "192.0.2.1"] if "--number 1 " in " ".join(sys.argv) else [])]))
"""


def test_node_that_refuses_before_they_have_met_is_told_once_and_ends_the_other(cluster, splits, tmp_path, monkeypatch):
    (tmp_path / "other_address.py").write_text(OTHER_ADDRESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("trainworthy.resources.backends.ray_jobs.ON_NODE", "other_address")
    job = job_of(splits, tmp_path)
    with pytest.raises(WorkerError) as refused:
        run_worker(job, backend=backend(cluster))
    assert refused.value.cause == "bad_input"
    assert refused.value.problem.count("a node has another address than it is told") == 1
    assert refused.value.value == "192.0.2.1"
    assert is_left(cluster, job) == []


def test_training_whose_launcher_was_killed_is_ended_on_all_nodes_before_the_next_one_begins(
    cluster, splits, tmp_path, quiet
):
    job = job_of(splits, tmp_path, SLOWLY)
    begun_by_a_launcher_that_is_killed(cluster, job, tmp_path, nodes=2)
    most, lines = [0], list[str]()
    watched = Watched(lambda: most.append(len(processes_of(job, ON_NODE))))
    answer = run_worker(job, backend=backend(cluster), watcher=watched, tell=lines.append)
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step >= 5
    assert "an earlier start of this job is still on the cluster" in lines[0]
    assert max(most) == 2
    assert answer.parameters_sha256 == quiet.parameters_sha256
    assert is_left(cluster, job) == []


def test_head_that_goes_during_a_training_keeps_nobody_from_cancelling_it(cluster, splits, tmp_path):
    job, lines = job_of(splits, tmp_path, SLOWLY), list[str]()
    killed = list[int]()

    def look() -> None:
        reached = reached_step(Path(job.out))
        if reached >= 5 and not killed:
            killed.append(reached)
            os.kill(cluster.head().pid, signal.SIGKILL)
        if killed and reached > killed[0] and any("does not answer" in line for line in lines):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster), watcher=Watched(look), tell=lines.append, grace_seconds=5)
    assert workers_of(job) == []
