"""What whoever starts a worker adds to its answer: whose seconds they were."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.cost.meter import Meter, count_queued
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import OUTAGE_SECONDS, MemorySeen
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.resources import worker_process
from trainworthy.resources.backends.backend import Ended, Start, Watcher
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.settings import DATABASE
from trainworthy.resources.supervisor import supervise


def test_answer_that_lay_there_already_costs_no_gpu_seconds_and_its_wait_is_its_queue(splits, tmp_path, monkeypatch):
    read, job = worker_process.read_result, toy_jobs.train_job(splits, tmp_path)

    def on_a_gpu(*given):
        found = read(*given)
        return found.model_copy(update={"gpu_seconds": 5.0}) if isinstance(found, TrainResult) else found

    monkeypatch.setattr(worker_process, "read_result", on_a_gpu)
    monkeypatch.setattr(worker_process, "Meter", lambda: SimpleNamespace(queue_seconds=1000.0))
    answers = [worker_process.run_worker(job) for _ in range(2)]
    assert all(isinstance(answer, TrainResult) for answer in answers)
    assert [answer.gpu_seconds for answer in answers if isinstance(answer, TrainResult)] == [5.0, 0.0]
    first = answers[0]
    assert isinstance(first, TrainResult)
    assert 1000 <= first.seconds.queue < 1001
    # The wait lay before the worker's life, so nothing else is less for it.
    assert first.seconds.start > 0


class Busy:
    """Machines that are had after a wait, of whose end nothing comes."""

    name, lock, memory_bytes = "busy", ".launch.lock", 2**30

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        # It says so while it waits, and last when it begins: half a minute earlier than it had thought.
        for seconds in (100.0, 400.0, 370.0):
            watcher.waited(seconds)
        return Ended(-15, MemorySeen(), "reclaimed", cpu_seconds=5000.0)


def test_wait_for_a_machine_is_nobodys_cost(tmp_path):
    job = VerifyJob(use_case_folder="u", out=str(tmp_path / "out"), device="cpu", artifact="a", artifact_sha256="s")
    meter, begun = Meter(), time.perf_counter()
    with pytest.raises(WorkerError, match="reclaimed") as caught:
        worker_process.run_worker(job, backend=Busy())
    assert caught.value.cause == "preempted"
    assert meter.queue_seconds == pytest.approx(400, abs=1)
    assert meter.wall_seconds == pytest.approx(time.perf_counter() - begun - meter.queue_seconds, abs=1)


def test_cpu_seconds_of_a_worker_elsewhere_are_in_the_cost_however_it_ended(tmp_path):
    job = VerifyJob(use_case_folder="u", out=str(tmp_path / "out"), device="cpu", artifact="a", artifact_sha256="s")
    meter = Meter()
    with pytest.raises(WorkerError, match="reclaimed"):
        worker_process.run_worker(job, backend=Busy())
    # More than this process has used in all its life.
    assert meter.cost(Sku(usd_per_hour=0.0)).cpu_seconds >= 5000.0


def test_budget_pays_for_no_attempts_wait(splits, tmp_path, monkeypatch):
    ends: list[float | None] = []

    def attempt(launcher, context, job, *given):
        ends.append(job.ends_at)
        count_queued(500.0)
        raise WorkerError("told", fix="f", exit_code=70, cause="preempted" if len(ends) < 2 else "bug")

    monkeypatch.setattr(Launcher, "_attempt", attempt)
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv(DATABASE, raising=False)
    (tmp_path / "state").mkdir()
    context: Any = SimpleNamespace(log=SimpleNamespace(warning=print), run=SimpleNamespace(run_id="r", tags={}))
    job = toy_jobs.train_job(splits, tmp_path, ends_at=1000.0)
    with pytest.raises(WorkerError, match="told"):
        Launcher().run(context, job, ChargedTo(run_id="r", use_case="toy", step="smoke", identity="i"))
    assert ends == [1000.0, 1500.0]


def test_storage_that_was_away_is_waited_for_and_the_wait_counts(splits, tmp_path):
    job, waits, lines = toy_jobs.train_job(splits, tmp_path), [], []
    answer = worker_process.run_worker(job)
    assert isinstance(answer, TrainResult)
    ends = iter([WorkerError("the storage was away", fix="look", exit_code=74, cause="storage_outage")])

    def attempt():
        for error in ends:
            raise error
        return answer

    supervised = supervise(job, attempt, lines.append, wait=waits.append)
    assert isinstance(supervised, TrainResult)
    assert waits == [OUTAGE_SECONDS]
    assert "after 60 s" in lines[0]
    assert supervised.seconds.queue == pytest.approx(answer.seconds.queue + OUTAGE_SECONDS)
    assert supervised.seconds.goodput < answer.seconds.goodput
