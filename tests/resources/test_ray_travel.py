"""Workers on nodes of Ray that share no storage with their launcher: nothing can come or go but by the bucket."""

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes_apart import needs_namespace
from kubernetes_played import Follows
from ray_apart import PlayedRay, backend, training, travelling_project
from s3_servers import moto_server, reached

from trainworthy.lifecycle.errors import BackendError, WorkerError
from trainworthy.lifecycle.failure import EXIT_STORAGE
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step, verify_checkpoint
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import ray
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import Nobody, run_worker

pytestmark = needs_namespace


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return travelling_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def bucket(monkeypatch, request) -> Iterator[str]:
    # Each its own: copies of an equal training would be gone on from.
    with moto_server() as address:
        yield f"{reached(monkeypatch, address)}/{request.node.name.partition('[')[0]}"


@pytest.fixture
def played(project, bucket, tmp_path, monkeypatch) -> Iterator[PlayedRay]:
    cluster = PlayedRay(project, tmp_path / "ray.log")
    monkeypatch.setattr(ray, "RayClient", lambda address: cluster)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TRAINWORTHY_STATE", bucket)
    yield cluster
    cluster.end()


class Looks(Nobody):
    """A watcher that does something at each look."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def look(self) -> None:
        self._do()


def left_in(bucket: str) -> set[str]:
    """What there is in the bucket, by the first part of its name."""
    return {name.partition("/")[0] for name in Bucket(bucket).names()}


def test_training_that_travels_to_a_node_has_the_bits_of_a_local_one_also_while_rays_head_is_away(
    project, played, bucket, tmp_path
):  # fmt: skip
    def leave() -> None:
        played.away = bool(played.processes)

    lines: list[str] = []
    here = run_worker(training(project, project / "here", use_case="fast"), backend=LOCAL, tell=print)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        there = run_worker(
            training(project, project / "there", use_case="fast"), backend=backend(project, bucket), tell=lines.append,
            output=(out.fileno(), err.fileno()), watcher=Looks(leave),
        )  # fmt: skip
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert there.curve == here.curve
    assert there.checkpoint is not None
    verify_checkpoint(Path(there.checkpoint.path), there.checkpoint.sha256)
    # What it wrote there is shown here.
    assert "loss" in (tmp_path / "err").read_text()
    assert lines == ["Ray at http://played does not answer (refused); the worker may go on"]
    (process,) = played.processes.values()
    assert process.wait(20) == 0
    assert left_in(bucket) == {"files", "checkpoints"}


@pytest.mark.slow
def test_training_whose_worker_is_killed_goes_on_from_the_copy_in_the_bucket(project, played, bucket, tmp_path):
    job, output, lines = training(project, out := project / "out", epochs=6), tmp_path / "output", list[str]()

    def kill() -> None:
        (process,) = played.processes.values()
        process.kill()

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
    assert answer.checkpoint is not None
    verify_checkpoint(Path(answer.checkpoint.path), answer.checkpoint.sha256)
    assert left_in(bucket) == {"files", "checkpoints"}


@pytest.mark.slow
def test_training_that_is_cancelled_while_rays_head_is_away_copies_its_checkpoint_and_ends(project, played, bucket):
    out, lines = project / "cancelled", list[str]()

    def leave() -> None:
        played.away = True

    follows = Follows(out, leave)

    def cancel() -> None:
        follows.look()
        if any("does not answer" in line for line in lines):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(
            training(project, out, epochs=20), backend=backend(project, bucket), grace_seconds=20.0,
            watcher=Looks(cancel), tell=lines.append,
        )  # fmt: skip
    (process,) = played.processes.values()
    # Its end was in the bucket before.
    assert process.wait(20) == 75
    assert len(lines) == 1
    assert "preempted" in json.loads((out / "error.json").read_text())["problem"]
    assert left_in(bucket) == {"files", "checkpoints"}
    assert any(f"/step-{reached_step(out):08d}-" in name for name in Bucket(bucket).names("checkpoints"))


def test_job_that_waits_for_a_node_and_is_cancelled_does_nothing_there(project, played, bucket):
    played.waits = True
    lines: list[str] = []

    def cancel() -> None:
        if lines:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(
            training(project, project / "waits"),
            backend=backend(project, bucket),
            watcher=Looks(cancel),
            tell=lines.append,
        )
    assert lines == ["waits for a node of Ray at http://played with 1 CPU"]
    assert left_in(bucket) == {"files"}
    (id,) = played.jobs_asked
    assert played.start(id).wait(60) == EXIT_STORAGE
    assert "its launcher is gone" in played.job(id).message
    assert left_in(bucket) == {"files"}


def test_node_that_sees_the_launchers_own_project_touches_nothing_and_says_what_to_do(project, played, bucket):
    played.entry = ()
    before = {path: path.read_bytes() for path in (project / "toy").rglob("*.py")}
    with pytest.raises(WorkerError, match="has files of somebody else") as refused:
        run_worker(training(project, project / "seen"), backend=backend(project, bucket), tell=print)
    assert refused.value.cause == "storage"
    assert "the launcher's own machine can be no such node" in refused.value.fix
    assert {path: path.read_bytes() for path in before} == before
    assert left_in(bucket) == {"files"}


def test_node_that_cannot_write_there_is_told_with_path_and_fix_and_is_no_fault_of_the_job(project, played, bucket):
    played.entry = tuple(part.replace("-t tmpfs", "-t tmpfs -o ro") for part in played.entry)
    with pytest.raises(WorkerError, match=f"cannot have the files of a worker at {project}: Read-only") as refused:
        run_worker(training(project, project / "refused"), backend=backend(project, bucket), tell=print)
    assert (refused.value.cause, refused.value.exit_code) == ("storage", EXIT_STORAGE)
    assert str(project) in str(refused.value.value)
    assert f"make {project} on each node" in refused.value.fix


@pytest.mark.parametrize("lacks", ["python", "trainworthy"])
def test_node_without_trainworthy_is_told_in_its_own_words(project, played, bucket, tmp_path, lacks):
    if lacks == "trainworthy":
        # One that finds no packages.
        (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        (tmp_path / "python").chmod(0o755)
    played.entry = ("/usr/bin/env", f"PATH={tmp_path}")
    with pytest.raises(BackendError, match="could not begin on the node") as refused:
        run_worker(training(project, project / f"without {lacks}"), backend=backend(project, bucket), tell=print)
    said = {"python": "python: not found", "trainworthy": "No module named 'trainworthy'"}
    assert said[lacks] in str(refused.value.value)
    assert "`python` on the PATH of Ray's process" in refused.value.fix
