"""A training over several nodes of a real Ray cluster of this machine, which Ray holds all at once."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import SKU, RayCluster, ray_cluster
from test_ray import Watched, workers_of
from test_supervisor import planted

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_client import RayClient
from trainworthy.resources.backends.ray_jobs import Node, id_prefix
from trainworthy.resources.worker_process import run_worker

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(variables={"RAY_JOB_START_TIMEOUT_SECONDS": "20"}) as running:
        running.add("first")
        running.add("second")
        yield running


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return toy_jobs.build_splits(tmp_path_factory.mktemp("splits"))


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Sums over several threads differ in the last bits, and weights are compared."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def backend(cluster: RayCluster, **resources: float) -> RayBackend:
    return RayBackend(cluster.address, Node(cpus=1, resources=resources or {SKU: 1}), 2**30, nodes=2)


def job_of(splits: Any, folder: Path, *edits: tuple[str, str], **fields: Any) -> TrainJob:
    job = planted(splits, folder, *edits, **fields)
    return job.model_copy(update={"processes": 2})


def statuses(cluster: RayCluster, job: TrainJob) -> list[str]:
    return [one.status for one in RayClient(cluster.address).jobs(id_prefix(job))]


def test_two_nodes_of_ray_train_as_two_processes_here_do_bit_for_bit(cluster, splits, tmp_path):
    ours, theirs = (job_of(splits, tmp_path / name, stage="smoke") for name in ("a", "b"))
    here = run_worker(ours)
    lines, watched = list[str](), Watched()
    with (tmp_path / "err").open("wb") as err:
        output = (err.fileno(), err.fileno())
        there = run_worker(theirs, backend=backend(cluster), tell=lines.append, watcher=watched, output=output)
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert there.curve == here.curve
    assert lines == [f"waits for 2 nodes of Ray at {cluster.address} each with 1 CPU, 1 of '{SKU}'"]
    assert 0 < watched.seconds[-1] < there.seconds.queue + 10
    assert "loss" in (tmp_path / "err").read_text()
    # Nothing of torch where Ray's head is, and no job that Ray counts as lost.
    assert workers_of(theirs) == []
    assert statuses(cluster, theirs) == ["SUCCEEDED"]
