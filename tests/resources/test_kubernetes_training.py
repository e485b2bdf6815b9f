"""Real trainings as Jobs of a scripted cluster, whose node runs the pod's command with the manifest's environment."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_api import Fault, kube_server, started
from kubernetes_played import Follows
from kubernetes_starter import backend

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.folder_lock import LOCK, is_free
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.kubernetes import manifest
from trainworthy.resources.backends.local import LOCAL
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


def training(volume: Path, out: Path, epochs: int = 1) -> TrainJob:
    spec = toy_jobs.spec_with(training=SPEC.training.model_dump(mode="json") | {"epochs": epochs})
    return toy_jobs.train_job(volume, out, "smoke", spec=spec, use_case=volume / "toy", device="cpu")


@contextlib.contextmanager
def started_by_process(job: TrainJob, volume: Path, nodes: str = "1") -> Iterator[None]:
    """The launcher as a process of its own, which is killed at the end."""
    command = [sys.executable, str(Path(__file__).with_name("kubernetes_starter.py"))]
    with subprocess.Popen(
        [*command, str(toy_jobs.write_job(job)), str(volume), nodes],
        env={**toy_jobs.environment(), "KUBECONFIG": os.environ["KUBECONFIG"]},
    ) as starter:
        try:
            yield
        finally:
            starter.kill()


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


@pytest.mark.slow
def test_starter_that_is_killed_leaves_no_worker_and_the_next_start_goes_on_from_its_checkpoint(volume, kube, tmp_path):
    out = volume / "orphaned"
    job = training(volume, out, epochs=20)
    with started_by_process(job, volume):
        until = time.monotonic() + 60
        while not reached_step(out):
            assert time.monotonic() < until
            time.sleep(0.05)
    (process,) = kube.processes.values()
    # It has written its checkpoint and ended by itself: nobody has asked the cluster for anything.
    assert process.wait(60) == 75
    assert not any("DELETE" in asked for asked in kube.asked)
    assert is_free(out)
    (end,) = out.glob("kubernetes/*/end.json")
    assert "whoever started it has given no sign of life" in end.read_text()
    reached = reached_step(out)
    answer = run_worker(job, backend=backend(volume), grace_seconds=20.0, watcher=Nobody(), tell=print)
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step == reached > 0
    assert [*kube.jobs, *kube.pods] == []


@pytest.mark.slow
def test_starter_that_cannot_reach_the_cluster_is_not_taken_for_a_dead_one(volume, kube, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.5)
    monkeypatch.setattr(manifest, "ABANDONED_SECONDS", 3.0)
    out, lines, away = volume / "cut_off", list[str](), list[float]()

    def cut() -> None:
        kube.faults.append(Fault(".", times=10_000))
        away.append(time.monotonic())

    class Cut(Follows):
        def look(self) -> None:
            super().look()
            if kube.faults and time.monotonic() - away[0] > 9:
                kube.faults.clear()

    answer = run_worker(
        training(volume, out, epochs=14),
        backend=backend(volume),
        grace_seconds=20.0,
        watcher=Cut(out, cut),
        tell=lines.append,
    )
    assert isinstance(answer, TrainResult)
    assert len(away) == 1
    # One pod from the first update to the last, three times as long away as a dead starter is waited for.
    assert answer.resumed_from_step == 0
    assert len(kube.processes) == 1
    assert any("does not answer about" in line for line in lines)


# Two pods


def by_two(volume: Path, out: Path) -> TrainJob:
    return training(volume, out, epochs=4).model_copy(update={"processes": 2})


@pytest.mark.slow
def test_two_pods_go_on_after_a_killed_rank_to_the_bits_of_one_machine(volume, kube, tmp_path):
    one = run_worker(by_two(volume, volume / "one"), backend=LOCAL, tell=print)
    assert isinstance(one, TrainResult)
    job, output, lines = by_two(volume, volume / "two"), tmp_path / "output", list[str]()

    def kill() -> None:
        os.kill(read_places(volume / "two")[1].pid, signal.SIGKILL)

    with output.open("wb") as file:
        once = functools.partial(
            run_worker, job, backend=backend(volume, "gpus", nodes=2), grace_seconds=20.0,
            watcher=Follows(volume / "two", kill), tell=lines.append, output=(file.fileno(), file.fileno()),
        )  # fmt: skip
        answer = supervise(job, once, lines.append)
    print(*lines, output.read_text(), sep="\n")
    assert isinstance(answer, TrainResult)
    (killed,) = answer.attempts
    assert killed.cause == "killed"
    assert "rank 1 of 2 (node 1 on " in killed.told
    assert 0 < killed.to_step == answer.resumed_from_step
    assert answer.parameters_sha256 == one.parameters_sha256
    assert [*kube.jobs, *kube.pods] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "how", "cause", "told"),
    [
        (0, "deleted", "preempted", "node 0 of 2: its pod was deleted"),
        (1, "killed", "killed", "it was node 1 of 2"),
    ],
)
def test_pod_that_is_deleted_or_killed_ends_both_and_is_named(volume, kube, tmp_path, number, how, cause, told):
    job, lines = by_two(volume, out := volume / f"{how}{number}"), list[str]()
    output = tmp_path / "output"

    def end() -> None:
        pod = kube.pods_of(*kube.jobs)[number]
        kube.delete_pod(pod, grace=20) if how == "deleted" else kube.processes[pod].kill()

    with output.open("wb") as file:
        once = functools.partial(
            run_worker, job, backend=backend(volume, nodes=2), grace_seconds=20.0, watcher=Follows(out, end),
            tell=print, output=(file.fileno(), file.fileno()),
        )  # fmt: skip
        answer = supervise(job, once, lines.append)
    assert isinstance(answer, TrainResult)
    (attempt,) = answer.attempts
    assert attempt.cause == cause
    assert told in attempt.told
    assert 0 < attempt.to_step == answer.resumed_from_step
    # Torch's own, of a store that is gone.
    assert "frame #" not in output.read_text()
    assert [*kube.jobs, *kube.pods] == []


@pytest.mark.slow
def test_starter_that_is_killed_leaves_neither_of_two_pods(volume, kube):
    job = training(volume, out := volume / "both", epochs=20).model_copy(update={"processes": 2})
    with started_by_process(job, volume, "2"):
        until = time.monotonic() + 90
        while not reached_step(out):
            assert time.monotonic() < until
            time.sleep(0.05)
    assert [process.wait(60) for process in kube.processes.values()] == [75, 75]
    assert not any("DELETE" in asked for asked in kube.asked)
    assert is_free(out)
    assert is_free(out, ".node1.lock")
