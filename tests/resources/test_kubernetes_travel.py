"""Trainings in pods that share no volume with their launcher: nothing can come or go but by the bucket."""

import sys
from pathlib import Path

import pytest
from kubernetes_apart import apart, backend, needs_namespace
from kubernetes_api import kube_server
from s3_servers import moto_server, reached

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.worker_process import run_worker

pytestmark = needs_namespace
PLACE = "        return self.layers(torch.cat"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The launcher's: rows, and a use case whose updates take their time."""
    folder = tmp_path_factory.mktemp("project")
    toy_jobs.build_splits(folder)
    slow = "        if self.training:\n            import time\n\n            time.sleep(0.1)\n"
    toy_jobs.changed_use_case(folder / "toy", (PLACE, slow + PLACE))
    return folder


@pytest.fixture
def bucket(monkeypatch):
    with moto_server() as address:
        yield f"{reached(monkeypatch, address)}/state"


@pytest.fixture
def kube(project, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with kube_server(tmp_path, apart(project)) as kube:
        kube.admits = True
        kube.watch_seconds = 0.3
        yield kube


def training(project: Path, out: Path, epochs: int = 1) -> TrainJob:
    spec = toy_jobs.spec_with(training={"batch_size": 32, "epochs": epochs, "checkpoint_every_steps": 5})
    return toy_jobs.train_job(project, out, "smoke", spec=spec, use_case=project / "toy", device="cpu")


def test_training_that_travels_has_the_bits_of_a_local_one_and_leaves_files_by_their_hash_alone(
    project, kube, bucket, tmp_path
):
    here = run_worker(training(project, project / "here"), backend=LOCAL, tell=print)
    with (tmp_path / "output").open("wb") as file:
        answer = run_worker(
            training(project, out := project / "there"), backend=backend(project, bucket), grace_seconds=20.0,
            output=(file.fileno(), file.fileno()), tell=print,
        )  # fmt: skip
    print((tmp_path / "output").read_text())
    assert isinstance(here, TrainResult)
    assert isinstance(answer, TrainResult)
    assert answer.parameters_sha256 == here.parameters_sha256
    assert reached_step(out) == reached_step(project / "here") > 0
    assert (out / "metrics.jsonl").read_bytes().count(b"\n") == (project / "here/metrics.jsonl").read_bytes().count(
        b"\n"
    )
    assert [*kube.jobs, *kube.pods] == []
    assert {name.partition("/")[0] for name in Bucket(bucket).names()} == {"files", "checkpoints"}
