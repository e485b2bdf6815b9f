"""The same as test_ray_travel.py on a real Ray cluster, each of whose nodes has an empty disk for the project."""

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_apart import needs_namespace
from kubernetes_played import Follows
from ray_apart import backend, real_ray, road, training, travelling_project
from ray_cluster import SKU, RayCluster
from ray_workers import statuses, workers_of
from s3_servers import moto_server, reached

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step, verify_checkpoint
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

pytestmark = [needs_namespace, pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return travelling_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, moto_server() as address:
        bucket = f"{reached(patch, address)}/{__name__}"
        patch.setenv("TRAINWORTHY_STATE", bucket)
        patch.setenv("OMP_NUM_THREADS", "1")
        yield bucket


@pytest.fixture(scope="module")
def cluster(project, bucket) -> Iterator[RayCluster]:
    with real_ray(project) as running:
        running.add("first")
        running.add("second")
        yield running


def test_training_on_a_cluster_without_a_common_storage_has_the_bits_of_a_local_one(cluster, project, bucket, tmp_path):
    here = run_worker(training(project, project / "here", use_case="fast"), backend=LOCAL, tell=print)
    job = training(project, project / "there", use_case="fast")
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        there = run_worker(
            job, backend=backend(project, bucket, cluster.address, **{SKU: 1}), tell=print,
            output=(out.fileno(), err.fileno()),
        )  # fmt: skip
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert there.curve == here.curve
    assert "loss" in (tmp_path / "err").read_text()
    assert workers_of(job) == []
    assert statuses(cluster, job, road(project, bucket)) == ["SUCCEEDED"]


def test_node_that_dies_takes_its_disk_along_and_the_training_goes_on_on_another(cluster, project, bucket):
    cluster.add("dies")
    quiet = run_worker(training(project, project / "quiet", epochs=3, use_case="fast"), backend=LOCAL, tell=print)
    job = training(project, out := project / "dies", epochs=3, use_case="slow")
    # The first start takes the node that dies, all later ones any.
    starts = iter([backend(project, bucket, cluster.address, dies=1)])
    again = backend(project, bucket, cluster.address, **{SKU: 1})
    follows = Follows(out, functools.partial(cluster.kill, "dies"))
    lines: list[str] = []

    def attempt():
        return run_worker(job, backend=next(starts, again), watcher=follows, grace_seconds=20.0, tell=lines.append)

    answer = supervise(job, attempt, lines.append)
    print(*lines, sep="\n")
    assert isinstance(answer, TrainResult)
    assert isinstance(quiet, TrainResult)
    (died,) = answer.attempts
    assert died.cause == "killed"
    assert "its node died" in died.told
    assert 0 < died.to_step <= answer.resumed_from_step < answer.steps
    assert answer.parameters_sha256 == quiet.parameters_sha256
    assert answer.checkpoint is not None
    verify_checkpoint(Path(answer.checkpoint.path), answer.checkpoint.sha256)
    assert workers_of(job) == []


def test_cancel_leaves_no_job_and_no_process_and_a_copy_of_the_checkpoint(cluster, project, bucket):
    job = training(project, out := project / "cancelled", epochs=20)

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(
            job, backend=backend(project, bucket, cluster.address, **{SKU: 1}), grace_seconds=20.0,
            watcher=Follows(out, cancel), tell=print,
        )  # fmt: skip
    assert workers_of(job) == []
    assert set(statuses(cluster, job, road(project, bucket))) <= {"STOPPED", "FAILED"}
    assert "preempted" in json.loads((out / "error.json").read_text())["problem"]
    assert any(f"/step-{reached_step(out):08d}-" in name for name in Bucket(bucket).names("checkpoints"))
    assert not Bucket(bucket).names("travel")


def test_training_whose_launcher_was_killed_is_ended_before_the_next_one_begins(cluster, project, bucket):
    job = training(project, out := project / "orphaned", epochs=20)
    command = [sys.executable, str(Path(__file__).with_name("ray_apart.py"))]
    path = os.pathsep.join([toy_jobs.environment()["PYTHONPATH"], str(toy_jobs.ROOT / "tests")])
    opens = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with subprocess.Popen(
        [*command, str(toy_jobs.write_job(job)), str(project), bucket, cluster.address],
        env={**toy_jobs.environment(), **opens, "PYTHONPATH": path},
    ) as starter:
        until = time.monotonic() + 90
        while not reached_step(out):
            assert time.monotonic() < until
            assert starter.poll() is None
            time.sleep(0.05)
        starter.kill()
    assert Bucket(bucket).names("travel")
    assert workers_of(job)
    reached_before, lines = reached_step(out), list[str]()
    answer = run_worker(
        job, backend=backend(project, bucket, cluster.address, **{SKU: 1}), grace_seconds=20.0, tell=lines.append
    )
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step >= reached_before > 0
    assert "an earlier start of this job is still on the cluster" in lines[0]
    assert workers_of(job) == []
    assert not Bucket(bucket).names("travel")
