"""Real trainings as Jobs of a scripted cluster, whose node runs the pod's command with the manifest's environment."""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes_api import NAMESPACE, kube_server, started

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.folder_lock import LOCK
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import Asked
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import Nobody, run_worker

# A checkpoint every few updates, and updates that take long enough to be met between two of them.
SPEC = toy_jobs.spec_with(training={"batch_size": 32, "epochs": 1, "checkpoint_every_steps": 5})
PLACE = "        return self.layers(torch.cat"


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    """What pods mount: rows, a use case whose updates take their time, and this Trainworthy."""
    folder = tmp_path_factory.mktemp("volume")
    (folder / "src").symlink_to(toy_jobs.ROOT / "src")
    toy_jobs.build_splits(folder)
    slow = "        if self.training:\n            import time\n\n            time.sleep(0.1)\n"
    toy_jobs.changed_use_case(folder / "toy", (PLACE, slow + PLACE))
    return folder


@pytest.fixture
def kube(volume, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(volume / "kubeconfig"))
    # None of these may reach a pod.
    monkeypatch.setenv("TRAINWORTHY_DATABASE", "postgresql://user:secret-password@host/name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    with kube_server(volume, started) as kube:
        kube.admits = True
        kube.watch_seconds = 0.3
        yield kube


def backend(volume: Path, queue: str | None = None) -> KubernetesBackend:
    cluster = Cluster(
        namespace=NAMESPACE, image="worker:1", volume=Volume(claim="project", mount=str(volume)), user=1000, group=1000,
        queue=queue, skus={"small": (machine := Machine(cpu=1, memory_gb=4))},
    )  # fmt: skip
    return KubernetesBackend(Asked(cluster, machine, 0, spot=False), {}, str(volume / "src"))


def training(volume: Path, out: Path) -> TrainJob:
    return toy_jobs.train_job(volume, out, "smoke", spec=SPEC, use_case=volume / "toy", device="cpu")


class Follows(Nobody):
    """Does something, once, when the training has written a checkpoint."""

    def __init__(self, out: Path, then: Callable[[], None]) -> None:
        self.out, self.then = out, [then]

    def look(self) -> None:
        if self.then and reached_step(self.out):
            self.then.pop()()


def test_training_that_is_killed_goes_on_from_its_checkpoint_in_a_new_pod(volume, kube, tmp_path):
    job, output = training(volume, volume / "out"), tmp_path / "output"
    lines: list[str] = []

    def kill() -> None:
        (pod,) = kube.pods
        kube.processes[pod].kill()

    with output.open("wb") as file:
        once = functools.partial(
            run_worker, job, backend=backend(volume, "gpus"), grace_seconds=20.0, watcher=Follows(volume / "out", kill),
            tell=print, output=(file.fileno(), file.fileno()),
        )  # fmt: skip
        answer = supervise(job, once, lines.append)
    assert isinstance(answer, TrainResult)
    (killed,) = answer.attempts
    assert killed.cause == "killed"
    assert 0 < killed.to_step < answer.steps
    assert "killed by SIGKILL" in lines[0]
    assert f"resumed from step {killed.to_step}" in output.read_text()
    assert [*kube.jobs, *kube.pods] == []
    assert len(kube.manifests) == 2
    # The launcher's lock is another than the one that the worker in the pod has taken.
    assert {LOCK, ".launch.lock"} <= {path.name for path in (volume / "out").iterdir()}
    assert "secret" not in json.dumps(kube.manifests)
    # What waiting for the pod took is the training's queue, as the worker tells it.
    assert 0 < answer.seconds.queue < 60


def test_training_that_is_cancelled_writes_its_checkpoint_and_leaves_no_process(volume, kube):
    out = volume / "cancelled"

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(
            training(volume, out), backend=backend(volume), grace_seconds=20.0, watcher=Follows(out, cancel), tell=print
        )
    assert [process.poll() for process in kube.processes.values()] == [75]
    assert [*kube.jobs, *kube.pods] == []
    assert "preempted" in json.loads((out / "error.json").read_text())["problem"]
