"""Workers in pods that share no volume with their launcher: nothing can come or go but by the bucket."""

import functools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes_apart import apart, backend, needs_namespace
from kubernetes_api import kube_server
from kubernetes_played import Follows
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from s3_servers import moto_server, reached

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import AnyJob, ServedArtifact, ServingJob, TrainJob, VerifyJob
from trainworthy.lifecycle.protocol.results import PredictResult, PreflightResult, TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step, verify_checkpoint
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.kubernetes import manifest
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

pytestmark = needs_namespace
PLACE = "        return self.layers(torch.cat"
SECRET = "password of the database"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The launcher's: rows, and a use case whose updates take their time."""
    folder = tmp_path_factory.mktemp("project")
    toy_jobs.build_splits(folder)
    slow = "        if self.training:\n            import time\n\n            time.sleep(0.1)\n"
    toy_jobs.changed_use_case(folder / "toy", (PLACE, slow + PLACE))
    toy_jobs.changed_use_case(folder / "fast")
    for name in ("toy", "fast"):
        (folder / name / ".env").write_text(SECRET)
    return folder


@pytest.fixture
def bucket(monkeypatch):
    with moto_server() as address:
        yield f"{reached(monkeypatch, address)}/state"


@pytest.fixture
def kube(project, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("SECRET_OF_THE_LAUNCHER", SECRET)
    with kube_server(tmp_path, apart(project)) as kube:
        kube.admits = True
        kube.watch_seconds = 0.3
        yield kube


def training(project: Path, out: Path, epochs: int = 1) -> TrainJob:
    spec = toy_jobs.spec_with(training={"batch_size": 32, "epochs": epochs, "checkpoint_every_steps": 5})
    return toy_jobs.train_job(project, out, "smoke", spec=spec, use_case=project / "toy", device="cpu")


def left_in(bucket: str) -> set[str]:
    """What there is in the bucket, by the first part of its name; nothing of it may hold a secret."""
    names = Bucket(bucket).names()
    assert not [name for name in names if SECRET.encode() in Bucket(bucket).read(name)[0]]  # pyright: ignore
    return {name.partition("/")[0] for name in names}


def test_training_that_travels_has_the_bits_of_a_local_one(project, kube, bucket):
    def job(out: str) -> TrainJob:
        # As fast as it can be.
        return training(project, project / out).model_copy(update={"use_case_folder": str(project / "fast")})

    here = run_worker(job("here"), backend=LOCAL, tell=print)
    there = run_worker(job("there"), backend=backend(project, bucket), tell=print)
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert shown(project / "there") == shown(project / "here")
    assert there.checkpoint is not None
    verify_checkpoint(Path(there.checkpoint.path), there.checkpoint.sha256)
    assert [*kube.jobs, *kube.pods] == []
    assert left_in(bucket) == {"files", "checkpoints"}
    assert SECRET not in json.dumps(kube.manifests)


def shown(out: Path) -> set[str]:
    """The files of a job's folder but for signs, and checkpoints, of which fast updates leave out some."""
    files = {path.relative_to(out).as_posix() for path in out.rglob("[!.]*") if path.is_file()}
    return {name for name in files if not name.startswith(("kubernetes/", "checkpoints/"))}


@pytest.mark.slow
def test_training_whose_pod_is_killed_goes_on_from_the_copy_in_the_bucket(project, kube, bucket, tmp_path):
    job, output, lines = training(project, out := project / "out", epochs=6), tmp_path / "output", list[str]()

    def kill() -> None:
        (pod,) = kube.pods
        kube.processes[pod].kill()

    with output.open("wb") as file:
        once = functools.partial(
            run_worker, job, backend=backend(project, bucket), grace_seconds=20.0, watcher=Follows(out, kill),
            tell=lines.append, output=(file.fileno(), file.fileno()),
        )  # fmt: skip
        answer = supervise(job, once, lines.append)
    print(*lines, output.read_text(), sep="\n")
    assert isinstance(answer, TrainResult)
    (killed,) = answer.attempts
    assert killed.cause == "killed"
    assert 0 < killed.to_step <= answer.resumed_from_step < answer.steps
    assert f"resumed from step {answer.resumed_from_step}" in output.read_text()
    # All that the answer names is here.
    assert answer.checkpoint is not None
    verify_checkpoint(Path(answer.checkpoint.path), answer.checkpoint.sha256)
    assert [*kube.jobs, *kube.pods] == []
    assert left_in(bucket) == {"files", "checkpoints"}
    assert SECRET not in json.dumps(kube.manifests)


@pytest.mark.slow
def test_training_that_is_cancelled_copies_its_checkpoint_and_leaves_no_process(project, kube, bucket):
    out = project / "cancelled"

    def cancel() -> None:
        raise KeyboardInterrupt

    job = training(project, out, epochs=20)
    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(project, bucket), grace_seconds=20.0, watcher=Follows(out, cancel), tell=print)
    assert [process.poll() for process in kube.processes.values()] == [75]
    assert [*kube.jobs, *kube.pods] == []
    assert "preempted" in json.loads((out / "error.json").read_text())["problem"]
    assert left_in(bucket) == {"files", "checkpoints"}
    # The checkpoint that it wrote in its grace is copied, and known here.
    assert any(f"/step-{reached_step(out):08d}-" in name for name in Bucket(bucket).names("checkpoints"))


@pytest.mark.slow
def test_launcher_that_is_killed_leaves_no_worker_and_the_next_start_goes_on(project, kube, bucket, tmp_path):
    job = training(project, out := project / "orphaned", epochs=20)
    command = [sys.executable, str(Path(__file__).with_name("kubernetes_apart.py"))]
    names = ("KUBECONFIG", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    path = os.pathsep.join([toy_jobs.environment()["PYTHONPATH"], str(toy_jobs.ROOT / "tests")])
    with subprocess.Popen(
        [*command, str(toy_jobs.write_job(job)), str(project), bucket],
        env={**toy_jobs.environment(), **{name: os.environ[name] for name in names}, "PYTHONPATH": path},
    ) as starter:
        until = time.monotonic() + 90
        while not reached_step(out):
            assert time.monotonic() < until
            assert starter.poll() is None
            time.sleep(0.05)
        starter.kill()
    (process,) = kube.processes.values()
    assert process.wait(90) == 75
    assert not any("DELETE" in asked for asked in kube.asked)
    assert "travel" in left_in(bucket)
    reached_before = reached_step(out)
    answer = run_worker(job, backend=backend(project, bucket), grace_seconds=20.0, tell=print)
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step >= reached_before > 0
    assert [*kube.jobs, *kube.pods] == []
    assert left_in(bucket) == {"files", "checkpoints"}


class Store:
    """How moto's server of this process fails meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.hangs_until, self.every, self.lost_every, self.ends_refused = 0, 0.0, 0, 0, 0
        answer, lock = DomainDispatcherApplication.__call__, threading.Lock()
        store = self

        def fail(app: Any, environ: dict[str, Any], start_response: Any) -> Any:
            with lock:
                store.count += 1
                count = store.count
            refused = b"<Error><Code>SlowDown</Code></Error>"
            while time.monotonic() < store.hangs_until:
                time.sleep(0.1)
            ends = environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("/ended.json")
            if ends and store.ends_refused:
                store.ends_refused -= 1
            elif not (store.every and count % store.every == 0):
                if not (store.lost_every and count % store.lost_every == 0):
                    return answer(app, environ, start_response)
                # It is done, and nobody hears of it.
                list(answer(app, environ, lambda *_: None))
            start_response(
                "503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(refused)))]
            )
            return [refused]

        monkeypatch.setattr(DomainDispatcherApplication, "__call__", fail)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["every third fails", "every third reply is lost", "hangs", "away at the end"])
def test_bucket_that_fails_changes_neither_answer_nor_end(project, kube, bucket, monkeypatch, fault):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.5)
    monkeypatch.setattr(manifest, "ABANDONED_SECONDS", 3.0)
    store, out = Store(monkeypatch), project / fault.replace(" ", "_")

    def begin() -> None:
        match fault:
            case "every third fails":
                store.every = 3
            case "every third reply is lost":
                store.lost_every = 3
            case "hangs":
                # Three times as long as a launcher may be silent.
                store.hangs_until = time.monotonic() + 9
            case _:
                store.ends_refused = 20

    answer = run_worker(
        training(project, out, epochs=4), backend=backend(project, bucket), grace_seconds=20.0,
        watcher=Follows(out, begin), tell=print,
    )  # fmt: skip
    store.every = store.lost_every = 0
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step == 0
    assert len(kube.processes) == 1
    assert store.ends_refused == 0
    assert answer.checkpoint is not None
    verify_checkpoint(Path(answer.checkpoint.path), answer.checkpoint.sha256)
    assert [*kube.jobs, *kube.pods] == []


@pytest.mark.slow
def test_every_kind_of_worker_travels(project, kube, bucket):
    full = toy_jobs.train_job(
        project, project / "full", "full", spec=toy_jobs.spec_with(training={"epochs": 1}), device="cpu",
        use_case=project / "toy",
    )  # fmt: skip
    trained = run_worker(full, backend=backend(project, bucket), tell=print)
    assert isinstance(trained, TrainResult)
    assert trained.artifact is not None
    assert trained.artifact_sha256 is not None
    artifact, sha256 = trained.artifact, trained.artifact_sha256
    predict = toy_jobs.predict_job(artifact, sha256, project / "benchmark.parquet", project / "predict")
    predict = predict.model_copy(update={"use_case_folder": str(project / "toy")})
    served = ServedArtifact(path=artifact, sha256=sha256, features=toy_jobs.ROWS.features)
    base: dict[str, Any] = {"use_case_folder": str(project / "toy"), "device": "cpu"}
    jobs: list[AnyJob] = [
        predict,
        VerifyJob(**base, out=str(project / "verify"), artifact=artifact, artifact_sha256=sha256),
        ServingJob(
            **base, out=str(project / "serving"), rows=toy_jobs.ROWS, candidate=served, champion=served, batch_rows=50,
            rows_file=str(project / "benchmark.parquet"),
        ),
        toy_jobs.preflight_job(project, project / "preflight", use_case=project / "toy", device="cpu"),
    ]  # fmt: skip
    answers = {job.kind: run_worker(job, backend=backend(project, bucket), tell=print) for job in jobs}
    predicted, preflight = answers["predict"], answers["preflight"]
    assert isinstance(predicted, PredictResult)
    assert predicted.predictions is not None
    assert Path(predicted.predictions.path).is_file()
    assert isinstance(preflight, PreflightResult)
    assert preflight.trials
    assert left_in(bucket) == {"files", "checkpoints"}
