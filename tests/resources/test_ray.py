"""Workers on a real Ray cluster of this machine: a head without cores, and nodes that come and go."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from planted_training import in_training, planted
from ray_cluster import SKU, RayCluster, ray_cluster
from ray_workers import Watched, at_step, begun_by_a_launcher_that_is_killed, processes_of, statuses, workers_of

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.errors import BackendError, SettingsError, WorkerError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.resources.backends.backend import WORKER
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_client import RayClient
from trainworthy.resources.backends.ray_jobs import STARTS, Node, id_prefix
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
SLOWLY = in_training("    time.sleep(0.05)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as running:
        running.add("first")
        running.add("second")
        yield running


def backend(cluster: RayCluster, cpus: int = 1, **resources: float) -> RayBackend:
    return RayBackend(cluster.address, Node(cpus=cpus, resources=resources or {SKU: 1}), 2**30)


def node_of(cluster: RayCluster, job: TrainJob, names: dict[str, str]) -> str:
    """The name of the node that runs the job."""
    (running,) = [one for one in _details(cluster) if (one.submission_id or "").startswith(id_prefix(job))]
    return names[running.driver_node_id]


def _details(cluster: RayCluster) -> list[Any]:
    from ray.job_submission import JobSubmissionClient  # pyright: ignore[reportMissingImports]

    return [one for one in JobSubmissionClient(cluster.address).list_jobs() if one.status == "RUNNING"]


def test_ray_trains_as_this_machine_does_bit_for_bit_and_hands_on_no_secret(cluster, splits, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_DATABASE", "postgresql://someone:s3cret@127.0.0.1/none")
    monkeypatch.setenv("TRAINWORTHY_SPOT_NOTICE", str(tmp_path / "no notice"))
    seen = tmp_path / "environment.json"
    dump = f"    import json; pathlib.Path({str(seen)!r}).write_text(json.dumps(dict(os.environ)))"
    ours, theirs = (planted(splits, tmp_path / name, in_training(dump), stage="smoke") for name in ("a", "b"))
    here = run_worker(ours)
    lines, watched = [], Watched()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        there = run_worker(
            theirs, backend=backend(cluster), more={"DAGSTER_X": "handed on"}, tell=lines.append, watcher=watched,
            output=(out.fileno(), err.fileno()),
        )  # fmt: skip
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert there.parameters_sha256 == here.parameters_sha256
    assert there.curve == here.curve
    environment = json.loads(seen.read_text())
    assert environment["DAGSTER_X"] == "handed on"
    assert environment["TRAINWORTHY_SPOT_NOTICE"] == str(tmp_path / "no notice")
    assert not [name for name, value in environment.items() if "s3cret" in value or name == "TRAINWORTHY_DATABASE"]
    assert lines == [f"waits for a node of Ray at {cluster.address} with 1 CPU, 1 of '{SKU}'"]
    assert watched.seconds == sorted(watched.seconds)
    assert 0 < watched.seconds[-1] < there.seconds.queue + 5
    assert "loss" in (tmp_path / "err").read_text()
    assert workers_of(theirs) == []
    assert statuses(cluster, theirs) == ["SUCCEEDED"]


def test_ray_trains_by_two_processes_on_one_node_as_this_machine_does(cluster, splits, tmp_path):
    ours, theirs = (toy_jobs.train_job(splits, tmp_path / name, processes=2) for name in ("a", "b"))
    here = run_worker(ours)
    meter, own = Meter(), time.process_time()
    there = run_worker(theirs, backend=backend(cluster, cpus=2))
    # Of both processes there, each of which has imported torch.
    assert meter.cost(Sku(usd_per_hour=0.0)).cpu_seconds - (time.process_time() - own) > 2
    assert isinstance(here, TrainResult)
    assert isinstance(there, TrainResult)
    assert (Path(theirs.out) / "ranks" / "1").is_dir()
    assert there.parameters_sha256 == here.parameters_sha256


@pytest.mark.parametrize(("way", "cause"), [("kill", "killed"), ("end", "preempted")])
def test_node_that_goes_is_told_and_the_training_goes_on_on_another(cluster, splits, tmp_path, way, cause):
    name = f"to-{way}"
    node = cluster.add(name)
    quiet = run_worker(planted(splits, tmp_path / "quiet"))
    job = planted(splits, tmp_path / "gone", SLOWLY)
    gone = at_step(job, 5, lambda: getattr(cluster, way)(name))
    # The first start takes the node that goes, all later ones any.
    starts = iter([backend(cluster, **{name: 1})])

    def attempt():
        return run_worker(job, backend=next(starts, backend(cluster)), watcher=gone, grace_seconds=3)

    lines: list[str] = []
    answer = supervise(job, attempt, lines.append)
    assert isinstance(answer, TrainResult)
    assert isinstance(quiet, TrainResult)
    assert [one.cause for one in answer.attempts] == [cause]
    assert ("its node died" if way == "kill" else "node") in answer.attempts[0].told
    assert node
    assert answer.resumed_from_step >= 5
    assert answer.parameters_sha256 == quiet.parameters_sha256
    assert workers_of(job) == []


def test_worker_that_is_killed_on_its_node_is_told_with_its_memory_and_goes_on(cluster, splits, tmp_path):
    job = planted(splits, tmp_path, in_training("    if once(17):\n        die(after=1.0)"), stage="smoke")
    answer = supervise(job, lambda: run_worker(job, backend=backend(cluster)), print)
    assert isinstance(answer, TrainResult)
    assert [one.cause for one in answer.attempts] == ["killed"]
    assert "SIGKILL" in answer.attempts[0].told
    assert "its process was seen with" in answer.attempts[0].told


def test_supervisor_of_ray_that_is_killed_takes_the_worker_along(cluster, splits, tmp_path):
    job = planted(splits, tmp_path, SLOWLY)

    def kill() -> None:
        (entry,) = [one for one in workers_of(job) if "trainworthy.resources.backends.on_node" in one.cmdline()]
        parent = entry.parent()
        assert parent is not None
        parent.kill()

    with pytest.raises(WorkerError, match="what started it on the node ended first") as caught:
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, kill))
    assert caught.value.cause == "killed"
    assert workers_of(job) == []


def test_error_of_the_use_case_comes_back_as_it_was_told(cluster, splits, tmp_path):
    fault = (
        "    from trainworthy.lifecycle.errors import DatasetError\n    raise DatasetError('no such rows', fix='look')"
    )
    job = planted(splits, tmp_path, in_training(fault), stage="smoke")
    with pytest.raises(WorkerError, match="no such rows") as caught:
        run_worker(job, backend=backend(cluster))
    assert (caught.value.cause, caught.value.exit_code, caught.value.fix) == ("bad_input", 65, "look")


def test_cancel_leaves_no_process_and_no_job_and_a_checkpoint_to_go_on_from(cluster, splits, tmp_path):
    job = planted(splits, tmp_path, SLOWLY)

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, cancel), grace_seconds=5)
    assert workers_of(job) == []
    assert set(statuses(cluster, job)) <= {"STOPPED", "FAILED"}
    assert "checkpoint is written" in toy_jobs.error_of(job)["problem"]


def test_cancelled_training_that_ignores_sigterm_is_killed_after_its_grace(cluster, splits, tmp_path):
    job = planted(
        splits, tmp_path, in_training("    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(0.05)")
    )
    asked = []

    def cancel() -> None:
        asked.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, cancel), grace_seconds=2)
    assert 2 <= time.monotonic() - asked[0] < 20
    assert workers_of(job) == []


def test_job_that_somebody_stops_in_ray_is_told_as_preempted_with_its_checkpoint(cluster, splits, tmp_path):
    job = planted(splits, tmp_path, SLOWLY)

    def stop() -> None:
        ray = RayClient(cluster.address)
        (running,) = [one.id for one in ray.jobs(id_prefix(job)) if not one.over]
        ray.stop(running)

    with pytest.raises(WorkerError, match="its node was asked to end it by SIGTERM") as caught:
        run_worker(job, backend=backend(cluster), watcher=at_step(job, 5, stop))
    assert caught.value.cause == "preempted"
    assert "checkpoint is written" in caught.value.problem
    assert statuses(cluster, job) == ["STOPPED"]


def test_job_that_waits_for_a_node_is_told_and_once_cancelled_never_begins(cluster, splits, tmp_path):
    began = tmp_path / "began"
    place = f"    pathlib.Path({str(began)!r}).write_text('')"
    job = planted(splits, tmp_path / "job", ("    return {name: [float(", place), stage="smoke")
    lines: list[str] = []

    def cancel() -> None:
        if lines:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_worker(job, backend=backend(cluster, late=1), tell=lines.append, watcher=Watched(cancel))
    assert lines == [f"waits for a node of Ray at {cluster.address} with 1 CPU, 1 of 'late'"]
    # Ray keeps it in its queue, and has a node for it now.
    assert statuses(cluster, job) == ["PENDING"]
    cluster.add("late")
    until = time.monotonic() + 60
    while statuses(cluster, job) == ["PENDING"]:
        assert time.monotonic() < until
    assert statuses(cluster, job)[0] in ("STOPPED", "FAILED")
    assert not began.exists()
    assert not list((Path(job.out) / STARTS).glob("*/alive"))


def test_training_whose_starter_was_killed_is_ended_before_the_next_one_begins(cluster, splits, tmp_path):
    job = planted(splits, tmp_path, SLOWLY)
    begun_by_a_launcher_that_is_killed(cluster, job, tmp_path)
    assert workers_of(job)
    most, lines = [0], []

    def count() -> None:
        most[0] = max(most[0], len(processes_of(job, WORKER)))

    answer = run_worker(job, backend=backend(cluster), watcher=Watched(count), tell=lines.append)
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step >= 5
    assert "an earlier start of this job is still on the cluster" in lines[0]
    assert most == [1]
    assert sorted(statuses(cluster, job)) in (["FAILED", "SUCCEEDED"], ["STOPPED", "SUCCEEDED"])


def test_worker_that_rays_memory_monitor_ends_ran_out_of_memory(cluster, splits, tmp_path):
    # Any use of this machine's memory is too much.
    cluster.add("tight", RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100")
    job = planted(splits, tmp_path, SLOWLY)
    try:
        with pytest.raises(WorkerError, match="running low on memory") as caught:
            run_worker(job, backend=backend(cluster, tight=1))
    finally:
        cluster.kill("tight")
    assert caught.value.cause == "out_of_memory"
    assert "batch_size" in caught.value.fix
    assert workers_of(job) == []


def test_node_without_the_project_is_told_and_starts_no_training(cluster, splits, tmp_path, monkeypatch):
    monkeypatch.setattr("trainworthy.resources.backends.ray_jobs.sys.executable", "/no/such/python")
    monkeypatch.setattr("trainworthy.resources.backends.ray.LATE_SECONDS", 1.0)
    job = planted(splits, tmp_path, stage="smoke")
    with pytest.raises(BackendError, match="could not begin on the node") as caught:
        run_worker(job, backend=backend(cluster, first=1))
    assert "/no/such/python" in str(caught.value.value)


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-engines")
def test_cluster_that_is_not_there_is_told_before_anything_begins(splits, tmp_path):
    job = planted(splits, tmp_path, stage="smoke")
    with pytest.raises(BackendError, match="Ray does not answer"):
        run_worker(job, backend=RayBackend("http://127.0.0.1:9", Node(cpus=1), 2**30))
    assert not (Path(job.out) / STARTS).exists()


def test_address_that_rays_own_variable_would_replace_is_refused(cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(SettingsError, match="asked by RAY_ADDRESS"):
        RayClient(cluster.address)


def test_head_that_goes_during_a_training_is_told_once_and_its_end_and_a_cancel_need_none(
    cluster, splits, tmp_path
):  # fmt: skip
    trained, cancelled = (planted(splits, tmp_path / name, SLOWLY) for name in ("a", "b"))
    lines: list[str] = []

    def cancel() -> None:
        if reached_step(Path(cancelled.out)) >= 10 and not cluster_answers(cluster):
            raise KeyboardInterrupt

    def second() -> None:
        with pytest.raises(KeyboardInterrupt):
            run_worker(cancelled, backend=backend(cluster), watcher=Watched(cancel), tell=print, grace_seconds=3)
        ended.append(workers_of(cancelled))

    ended: list[list[psutil.Process]] = []
    beside = threading.Thread(target=second)
    beside.start()
    kill = at_step(trained, 5, lambda: os.kill(cluster.head().pid, signal.SIGKILL))
    answer = run_worker(trained, backend=backend(cluster), watcher=kill, tell=lines.append)
    beside.join()
    assert isinstance(answer, TrainResult)
    assert [line for line in lines if "does not answer" in line] == lines[1:]
    assert len(lines) == 2
    assert ended == [[]]


def cluster_answers(cluster: RayCluster) -> bool:
    try:
        RayClient(cluster.address)
    except BackendError:
        return False
    return True
