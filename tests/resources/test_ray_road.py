"""Nodes of Ray that share no storage with their launcher: what that needs, and what is asked of Ray then."""

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from travelled import Travelled, fails

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import BackendError, SettingsError, StateError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED, EXIT_STORAGE, End, cause_of_end
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends import ray, ray_ends
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.choose import backend_of, launcher_problems
from trainworthy.resources.backends.ray_jobs import JobSnapshot, Node, end_without_word, id_prefix, request
from trainworthy.resources.backends.signs import ObservedSign
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel.disk import MARK
from trainworthy.resources.backends.travel.places import WANTED
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.settings import RAY_ADDRESS, RAY_FOLDER
from trainworthy.resources.worker_process import Nobody

BUCKET = "s3://models/team"
COMPUTE = ComputeSpec(sku="local-2cpu", launcher="ray")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "use_cases").mkdir()
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(tmp_path))
    monkeypatch.setenv(RAY_ADDRESS, "http://10.0.0.5:8265")
    monkeypatch.setenv(RAY_FOLDER, str(tmp_path))
    monkeypatch.setenv("TRAINWORTHY_STATE", BUCKET)
    for name in ("TRAINWORTHY_VAR", "TRAINWORTHY_DURABLE", "TRAINWORTHY_USE_CASES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_folder_that_nodes_do_not_share_and_a_bucket_are_enough_and_write_nothing(project, monkeypatch):
    found = backend_of(COMPUTE)
    assert isinstance(found, ray.RayBackend)
    assert found.road == Road(BUCKET, project / "var", project)
    assert not (project / "var").exists()
    monkeypatch.delenv(RAY_FOLDER)
    shared = backend_of(COMPUTE)
    assert isinstance(shared, ray.RayBackend)
    assert shared.road is None


@pytest.mark.parametrize("state", [None, "folder"])
def test_folder_without_a_bucket_is_refused_with_both_ways_out(project, monkeypatch, state):
    monkeypatch.setenv("TRAINWORTHY_STATE", str(project / state)) if state else monkeypatch.delenv("TRAINWORTHY_STATE")
    with pytest.raises(SettingsError, match=f"{RAY_FOLDER} names a folder .*TRAINWORTHY_STATE no bucket") as refused:
        backend_of(COMPUTE)
    assert "TRAINWORTHY_STATE=s3://BUCKET/PREFIX" in refused.value.fix
    assert f"unset {RAY_FOLDER}" in refused.value.fix
    assert any("no bucket" in problem.problem for problem in launcher_problems(COMPUTE))


def test_folder_for_copies_and_several_nodes_are_refused(project, monkeypatch):
    with pytest.raises(SettingsError, match="several nodes needs a volume") as refused:
        backend_of(ComputeSpec(sku="local-2cpu", launcher="ray", processes=2, nodes=2))
    assert f"unset {RAY_FOLDER}" in refused.value.fix
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(project))
    with pytest.raises(SettingsError, match="TRAINWORTHY_DURABLE is a folder, which workers there do not have"):
        backend_of(COMPUTE)


@pytest.mark.parametrize("named", ["/", "use_cases", "/no/such/folder"])
def test_what_is_no_folder_below_the_root_is_refused(project, monkeypatch, named):
    monkeypatch.chdir(project)
    monkeypatch.setenv(RAY_FOLDER, named)
    with pytest.raises(SettingsError, match=f"{RAY_FOLDER} names no folder below /") as refused:
        backend_of(COMPUTE)
    assert refused.value.value == named


def test_project_in_a_folder_that_workers_had_is_refused_before_one_empties_it(project):
    (project / MARK).touch()
    with pytest.raises(SettingsError, match="would empty its project") as refused:
        backend_of(COMPUTE)
    assert refused.value.value == str(project / MARK)


def test_state_folder_outside_of_it_is_refused_before_anything_runs(project, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(elsewhere))
    with pytest.raises(SettingsError, match=f"not below {RAY_FOLDER}.*: its state folder: {elsewhere}") as refused:
        backend_of(COMPUTE)
    assert RAY_FOLDER in refused.value.fix


class Asked:
    """A head that remembers what it was asked, and knows the jobs of an earlier launcher."""

    def __init__(self, *known: JobSnapshot) -> None:
        self.known, self.stopped, self.submitted = known, list[str](), list[dict[str, Any]]()

    def jobs(self, prefix: str) -> list[JobSnapshot]:
        return [job for job in self.known if job.id.startswith(prefix)]

    def job(self, id: str) -> JobSnapshot:
        return next((job for job in self.known if job.id == id), JobSnapshot(id, "FAILED", exit_code=127))

    def stop(self, id: str) -> None:
        self.stopped.append(id)

    def submit(self, request: dict[str, Any]) -> None:
        self.submitted.append(request)


def start_of(out: Path) -> Start:
    job = toy_jobs.train_job(out, out, device="cpu")
    return Start(job, out / "job.json", 1.5, {}, (1, 2), 10.0, False, 0)


def test_node_is_asked_for_a_python_of_its_own_and_the_time_that_files_take(tmp_path):
    road = Road(BUCKET, tmp_path / "var", tmp_path)
    start, folder = start_of(tmp_path / "out"), tmp_path / "out/ray/trainworthy-1"
    asked = request(start, Node(cpus=1), "id", folder, {}, 7.0, road)
    words = shlex.split(asked["entrypoint"])
    assert words[:4] == ["exec", "python", "-m", "trainworthy.resources.backends.travel.arrival"]
    assert "PYTHONPATH" not in asked["entrypoint"]
    assert sys.executable not in words
    own, others = words[: words.index("--")], words[words.index("--") + 1 :]
    assert own[own.index("--start") + 1] == f"travel/{id_prefix(start.job, road)[:-1]}/trainworthy-1"
    assert own[own.index("--root") + 1] == str(tmp_path)
    assert "--output" in own
    assert others[others.index("--grace") + 1] == "10.0"
    assert "torch" in others[others.index("--packages") + 1]
    # A silent launcher is waited for as long on both.
    assert own[own.index("--abandoned") + 1] == others[others.index("--abandoned") + 1] == "600.0"
    assert asked["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "45"


def test_two_launchers_with_one_path_have_jobs_of_their_own(tmp_path):
    job = toy_jobs.train_job(tmp_path, tmp_path / "out")
    here, there = (Road(BUCKET, tmp_path / name, tmp_path) for name in ("a", "b"))
    assert id_prefix(job, here) == id_prefix(job, here) != id_prefix(job, there)
    assert id_prefix(job, here) != id_prefix(job)


@pytest.fixture
def backend(travelled: Travelled) -> ray.RayBackend:
    return ray.RayBackend(
        "http://ray", Node(cpus=1), 2**30, Road(travelled.address, travelled.home / "var", travelled.home)
    )


def run(backend: ray.RayBackend, travelled: Travelled, monkeypatch: pytest.MonkeyPatch, head: Asked) -> None:
    monkeypatch.setattr(ray, "RayClient", lambda address: head)
    monkeypatch.setattr(ray, "LOOK_SECONDS", 0.01)
    backend.run(travelled.start, Nobody(), travelled.told.append)


def test_file_outside_is_refused_before_anything_is_asked(backend, travelled, monkeypatch, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    travelled.job = travelled.job.model_copy(update={"artifact": str(outside)})
    head = Asked()
    with pytest.raises(SettingsError, match=f"not below {travelled.home}, .*artifact: {outside}"):
        run(backend, travelled, monkeypatch, head)
    assert head.submitted == []
    assert travelled.bucket.names() == []


def test_word_of_an_earlier_start_is_taken_back_before_the_next_is_submitted(backend, travelled, monkeypatch):
    prefix = id_prefix(travelled.job, backend.road)
    beat = f"travel/{prefix[:-1]}/{prefix}old/{WANTED}"
    travelled.bucket.put(beat, b"1")
    head, at_submission = Asked(JobSnapshot(f"{prefix}a", "STOPPED"), JobSnapshot(f"{prefix}b", "PENDING")), list[str]()
    monkeypatch.setattr(head, "submit", lambda request: at_submission.extend(travelled.bucket.names("travel")))
    with pytest.raises(BackendError, match="could not begin on the node"):
        run(backend, travelled, monkeypatch, head)
    (mine,) = head.stopped
    assert mine.startswith(prefix)
    assert beat not in at_submission
    assert f"travel/{prefix[:-1]}/{mine}/{WANTED}" in at_submission
    assert travelled.bucket.names("travel") == []


def test_earlier_start_that_does_not_end_keeps_the_next_from_beginning(backend, travelled, monkeypatch):
    prefix = id_prefix(travelled.job, backend.road)
    head = Asked(JobSnapshot(f"{prefix}old", "RUNNING"))
    monkeypatch.setattr(ray_ends, "GONE_SECONDS", 0.0)
    monkeypatch.setattr(ray_ends, "LAST_SECONDS", -10.0)
    with pytest.raises(BackendError, match="an earlier start of this job does not end") as refused:
        run(backend, travelled, monkeypatch, head)
    assert refused.value.value == [f"{prefix}old"]
    assert head.stopped == [f"{prefix}old"]
    assert head.submitted == []
    assert "an earlier start of this job is still on the cluster" in travelled.told[0]


def test_bucket_that_is_away_before_the_start_is_told(backend, travelled, monkeypatch):
    fails(monkeypatch, lambda kind, name: "before" if kind == "names" else "")
    head = Asked()
    with pytest.raises(StateError, match="could not be sent"):
        run(backend, travelled, monkeypatch, head)
    assert head.submitted == []


@pytest.mark.parametrize(("code", "cause"), [(EXIT_PREEMPTED, "preempted"), (EXIT_STORAGE, "storage_outage")])
@pytest.mark.parametrize("began", [False, True])
def test_entry_that_did_nothing_is_told_by_its_own_code(code, cause, began):
    """The second of two entries of one job, or one whose bucket was away."""
    ended = end_without_word(JobSnapshot("i", "FAILED", exit_code=code, message="said so"), began, "")
    assert cause_of_end(End(exit_code=ended.exit_code, seen=ended.seen)) == cause
    assert "said so" in ended.seen


def test_node_gives_a_sign_with_each_index_and_a_bucket_that_is_away_is_no_silence(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        sign = journey.alive()
        assert not sign.there()
        mirror.turn()
        journey._turns._done(journey._take)
        assert sign.there()
        assert sign.silent_seconds() == 0.0
        now = [time.monotonic()]
        monkeypatch.setattr(journeys.time, "monotonic", lambda: now[0])
        # A minute in which the bucket has not answered.
        now[0] += 60.0
        assert sign.silent_seconds() == 0.0
        # It does, and has nothing new.
        journey._turns._done(journey._take)
        now[0] += 5.0
        assert sign.silent_seconds() == 5.0


def test_what_a_worker_writes_comes_by_parts(travelled):
    with travelled.under_way() as (journey, mirror):
        for name in ("stdout", "stderr"):
            travelled.write(travelled.here / "kubernetes/1234abcd" / name, "")
        output = travelled.there / "kubernetes/1234abcd/stdout"
        for text in ("one\n", "one\ntwo\n"):
            travelled.write(output, text)
            mirror.turn()
            journey._take()
            assert (travelled.here / "kubernetes/1234abcd/stdout").read_text() == text
        assert len(travelled.bucket.names(f"{journey.prefix}/streams")) == 2


@pytest.mark.parametrize(("status", "succeeded"), [("SUCCEEDED", True), ("FAILED", False), ("STOPPED", False)])
def test_success_of_a_node_without_a_common_folder_has_to_be_in_the_bucket(tmp_path, status, succeeded):
    class Journey:
        def __init__(self) -> None:
            self.asked = list[bool]()

        def alive(self) -> ObservedSign:
            return ObservedSign(tmp_path / "alive")

        def arrived(self, *, succeeded: bool) -> None:
            self.asked.append(succeeded)

    class Ray:
        def job(self, id: str) -> JobSnapshot:
            return JobSnapshot(id, status, exit_code=0 if succeeded else 1)

    client: Any = Ray()
    journey: Any = Journey()
    following = ray._Following(client, "i", tmp_path, journey)
    following.began = True
    assert following.look() is not None
    assert journey.asked == [succeeded]
