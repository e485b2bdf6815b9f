"""What is asked of Ray and what its words mean, without Ray; test_ray.py has the same on a cluster."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import BackendError, PriceError, SettingsError
from trainworthy.lifecycle.failure import End, cause_of_end
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends import choose, on_node, ray, ray_client
from trainworthy.resources.backends.backend import Ended, Start
from trainworthy.resources.backends.choose import backend_of, launcher_problems
from trainworthy.resources.backends.ray_jobs import (
    JobSnapshot,
    Node,
    command,
    end_without_word,
    id_prefix,
    new_id,
    request,
)
from trainworthy.resources.settings import RAY_ADDRESS

DIED = "Job supervisor actor died: …\nThe actor died because its node has died. Node Id: e12f\n\tthe actor's node was "


def start_of(out: Path, **fields: Any) -> Start:
    job = toy_jobs.train_job(out, out, **fields)
    return Start(job, out / "job.json", 1.5, {"OWN": "1"}, (1, 2), 10.0, False, 0)


def compute(**fields: Any) -> ComputeSpec:
    return ComputeSpec(launcher="ray", sku="local-2cpu", **fields)


def cause(ended: Ended) -> str:
    return cause_of_end(End(exit_code=ended.exit_code, memory=ended.memory, seen=ended.seen))


def test_ids_of_a_job_begin_alike_and_those_of_another_folder_or_kind_do_not(tmp_path):
    job, other = toy_jobs.train_job(tmp_path, tmp_path / "a"), toy_jobs.train_job(tmp_path, tmp_path / "b")
    assert id_prefix(job).startswith("trainworthy-toy-train-")
    assert new_id(id_prefix(job)) != new_id(id_prefix(job))
    assert not new_id(id_prefix(other)).startswith(id_prefix(job))
    assert not id_prefix(toy_jobs.preflight_job(tmp_path, tmp_path / "a")).startswith(id_prefix(job))


def test_request_has_the_variables_and_resources_of_the_job_and_its_grace(tmp_path):
    node = Node(cpus=8, gpus=2, resources={"ec2-l4": 1})
    asked = request(
        start_of(tmp_path, processes=2, device="cuda"), node, "id", tmp_path, {"TRAINWORTHY_VAR": "/v"}, 7.0
    )
    assert asked["submission_id"] == "id"
    assert (asked["entrypoint_num_cpus"], asked["entrypoint_num_gpus"]) == (8, 2)
    assert asked["entrypoint_resources"] == {"ec2-l4": 1}
    variables = asked["runtime_env"]["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "4"
    assert variables["RAY_JOB_STOP_WAIT_TIME_S"] == "15"
    assert (variables["OWN"], variables["TRAINWORTHY_VAR"], variables["OMP_WAIT_POLICY"]) == ("1", "/v", "PASSIVE")
    assert all(isinstance(value, str) for value in variables.values())
    assert "--queued 1.5 --submitted 7.0 --grace 10.0" in asked["entrypoint"]


def test_job_for_the_cpu_asks_for_no_gpu_and_says_so(tmp_path):
    job, node = toy_jobs.train_job(tmp_path, tmp_path, device="cpu"), Node(cpus=1, gpus=2)
    assert node.gpus_of(job) == 0
    assert node.words(job) == "1 CPU"
    assert node.words(job.model_copy(update={"device": "auto"})) == "1 CPU, 2 GPU"


def test_command_does_nothing_where_it_is_no_longer_wanted(tmp_path):
    line = command(start_of(tmp_path / "it's"), tmp_path / "it's", 7.0)
    (tmp_path / "it's").mkdir()
    assert subprocess.run(["/bin/sh", "-c", line], check=False).returncode == 75
    assert not list((tmp_path / "it's").iterdir())
    # Wanted, it runs what reads the job; there is none, and what that says is kept beside it.
    (tmp_path / "it's" / "wanted").touch()
    assert subprocess.run(["/bin/sh", "-c", line], check=False, stdout=subprocess.DEVNULL).returncode == 65
    assert "is no job" in (tmp_path / "it's" / "stderr").read_text()


ENDS = {
    "memory monitor": (
        JobSnapshot("i", "FAILED", message="1 worker(s) were killed due to the node running low on memory."),
        "out_of_memory",
        "running low on memory",
    ),
    "node asked to end": (
        JobSnapshot("i", "FAILED", message=DIED + "terminated expectedly: received SIGTERM"),
        "preempted",
        "its node was taken away; Ray said: its node has died. Node Id: e12f the actor's node was terminated",
    ),
    "node preempted": (JobSnapshot("i", "FAILED", message=DIED + "preempted"), "preempted", "its node was taken away"),
    "node died": (
        JobSnapshot("i", "FAILED", message=DIED + "terminated unexpectedly: late. The actor never ran"),
        "killed",
        "its node died; Ray said: its node has died. Node Id: e12f the actor's node was terminated unexpectedly: late.",
    ),
    "supervisor died": (
        JobSnapshot("i", "FAILED", message="worker process has died"),
        "killed",
        "worker process has died",
    ),
    "stopped": (JobSnapshot("i", "STOPPED", message="stopped"), "preempted", "stopped by somebody else"),
    "a log that speaks of nodes": (JobSnapshot("i", "FAILED", exit_code=1, message=DIED + "preempted"), "bug", "node"),
    "our own process failed": (JobSnapshot("i", "FAILED", exit_code=1, message="exit code 1"), "bug", "exit code 1"),
}


@pytest.mark.parametrize("name", ENDS)
def test_end_that_only_ray_knows_gets_its_cause_and_words(name):
    job, expected, words = ENDS[name]
    ended = end_without_word(job, began=True, last_line="")
    assert cause(ended) == expected
    assert words in ended.seen


def test_end_of_what_never_began_is_no_training_s_fault():
    with pytest.raises(BackendError, match="could not begin") as caught:
        end_without_word(JobSnapshot("i", "FAILED", exit_code=127, message="exit code 127"), False, "sh: no python")
    assert caught.value.value == "sh: no python"
    timeout = JobSnapshot("i", "FAILED", error="JOB_SUPERVISOR_ACTOR_START_TIMEOUT", message="within 900 seconds")
    with pytest.raises(BackendError, match="no node") as caught:
        end_without_word(timeout, False, "")
    assert "RAY_JOB_START_TIMEOUT_SECONDS" in caught.value.fix
    # A node that dies at once, and a job that somebody stops while it waits, are as they are later.
    assert cause(end_without_word(ENDS["node died"][0], False, "")) == "killed"
    assert cause(end_without_word(ENDS["stopped"][0], False, "")) == "preempted"


@pytest.mark.parametrize(
    "value", ["", "10.0.0.5:6379", "ray://10.0.0.5:10001", "http://h:8265/api", "http://u:s3cret@h:1"]
)
def test_address_that_is_no_dashboard_s_is_refused_without_its_password(value, monkeypatch):
    monkeypatch.setenv(RAY_ADDRESS, value)
    with pytest.raises(SettingsError) as caught:
        ray_client.ray_address()
    assert RAY_ADDRESS in caught.value.fix
    assert "s3cret" not in str(caught.value)


def test_launcher_ray_takes_a_machine_of_the_sku(monkeypatch, tmp_path):
    monkeypatch.setenv(RAY_ADDRESS, "http://10.0.0.5:8265/")
    chosen = backend_of(compute(processes=2, loaders=3, gpus=2))
    node = Node(cpus=5, gpus=2, resources={"local-2cpu": 1.0})
    assert chosen == ray.RayBackend("http://10.0.0.5:8265", node, 4 * 2**30)
    assert chosen.name == "ray"
    (tmp_path / "prices.yaml").write_text(
        "dated: 2026-01-01\nskus: {local-2cpu: {usd_per_hour: 1, cpus: 16, memory_gb: 1}}\n"
    )
    monkeypatch.setattr(ray, "read_settings", lambda: SimpleNamespace(prices=tmp_path / "prices.yaml"))
    other = backend_of(compute())
    assert isinstance(other, ray.RayBackend)
    assert (other.node.cpus, other.memory_bytes) == (16, 2**30)
    with pytest.raises(PriceError):
        backend_of(ComputeSpec(launcher="ray", sku="unknown"))
    monkeypatch.delenv(RAY_ADDRESS)
    with pytest.raises(SettingsError, match="needs the address"):
        backend_of(compute())
    (tmp_path / "prices.yaml").write_text("dated: 2026-01-01\nskus: {local-2cpu: {usd_per_hour: 1}}\n")
    with pytest.raises(PriceError, match="memory_gb of local-2cpu"):
        backend_of(compute())


def test_launcher_ray_has_one_process_or_several_each_with_a_gpu_of_its_own():
    assert compute().processes == 1
    assert compute(processes=2).processes == 2
    with pytest.raises(ValueError, match="GPU of its own"):
        compute(processes=2, gpus=1)


def test_ray_that_is_not_installed_is_told_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(SettingsError, match="not installed") as caught:
        ray_client.RayClient("http://127.0.0.1:9")
    assert "pip install 'trainworthy[ray]'" in caught.value.fix


def test_call_that_fails_or_is_not_answered_is_ray_away():
    assert ray_client._within(lambda: 3, 10) == 3
    with pytest.raises(ray_client.RayAwayError, match=r"no answer in"):
        ray_client._within(lambda: time.sleep(1), 0.05)
    with pytest.raises(ray_client.RayAwayError, match="RuntimeError: 500"):
        ray_client._within(lambda: (_ for _ in ()).throw(RuntimeError("500\nmore")), 10)
    with pytest.raises(ray_client.RayAwayError, match=r"ConnectionError$"):
        ray_client._within(lambda: (_ for _ in ()).throw(ConnectionError()), 10)


class Away:
    """A head that does not answer."""

    def job(self, id: str) -> JobSnapshot:
        raise ray_client.RayAwayError("refused")


def test_silent_head_and_silent_worker_are_waited_for_and_then_killed_in_words(tmp_path, monkeypatch):
    following = ray._Following(Away(), "i", tmp_path)  # pyright: ignore[reportArgumentType]
    assert following.look() is None
    assert following.away == "refused"
    monkeypatch.setattr(ray, "PATIENCE_SECONDS", 0.05)
    time.sleep(0.1)
    # A worker that gives signs goes on, whatever the head does.
    (tmp_path / "alive").write_text("1")
    assert following.look() is None
    assert following.began
    time.sleep(0.1)
    ended = following.look()
    assert ended is not None
    assert ended.exit_code == -signal.SIGKILL
    assert "neither Ray's head nor the worker gave a sign of life" in ended.seen
    # Its end is known without the head.
    (tmp_path / "end.json").write_text(json.dumps({"exit_code": 0}))
    assert following.look() == Ended(0, on_node.NodeEnd(exit_code=0).memory)


class Over:
    """A head that says of every job that it is over."""

    def __init__(self, **fields: Any) -> None:
        self._job = JobSnapshot("i", **fields)

    def job(self, id: str) -> JobSnapshot:
        return self._job


def test_end_that_comes_late_over_the_storage_is_waited_for_where_the_node_has_left_one(tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "LOOK_SECONDS", 0.01)
    (tmp_path / "alive").write_text("1")

    def come(seconds: float) -> None:
        (tmp_path / "end.json").write_text(json.dumps({"exit_code": 65}))

    def end_of(**fields: Any) -> Ended | None:
        (tmp_path / "end.json").unlink(missing_ok=True)
        return ray._Following(Over(**fields), "i", tmp_path).look()  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ray.time, "sleep", come)
    for fields in (
        {"status": "FAILED", "exit_code": 65},
        {"status": "STOPPED"},
        {"status": "SUCCEEDED", "exit_code": 0},
    ):
        ended = end_of(**fields)
        assert ended is not None
        assert ended.exit_code == 65
    # Of a node that died, and of a killed command, nothing comes.
    for fields in ({"status": "FAILED", "message": DIED}, {"status": "FAILED", "exit_code": -9}):
        ended = end_of(**fields)
        assert ended is not None
        assert ended.exit_code == -9


def test_output_is_copied_as_it_comes_and_to_its_end(tmp_path):
    with (tmp_path / "copy").open("wb") as copy, ray._copied(tmp_path / "out", copy.fileno()) as more:
        more()
        (tmp_path / "out").write_bytes(b"one ")
        more()
        assert (tmp_path / "copy").read_bytes() == b"one "
        with (tmp_path / "out").open("ab") as out:
            out.write(b"two")
    assert (tmp_path / "copy").read_bytes() == b"one two"


def test_all_that_keeps_a_launcher_from_being_asked_is_told_before_anything_runs(monkeypatch):
    assert launcher_problems(ComputeSpec(sku="local-2cpu")) == []
    monkeypatch.delenv(RAY_ADDRESS, raising=False)
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    package, address = launcher_problems(compute())
    assert (package.where, package.problem) == ("use_case.yaml: compute.launcher", "the package ray is not installed")
    assert package.fix == "pip install 'trainworthy[ray]'"
    assert RAY_ADDRESS in address.problem
    assert "http://" in address.fix
    monkeypatch.setenv(RAY_ADDRESS, "http://10.0.0.5:8265")
    monkeypatch.setattr(choose, "find_spec", lambda name: object())
    assert launcher_problems(compute()) == []
