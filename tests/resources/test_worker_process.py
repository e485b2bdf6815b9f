"""What whoever starts a worker adds to its answer: whose seconds they were."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import OUTAGE_SECONDS
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.resources import worker_process
from trainworthy.resources.supervisor import supervise


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return toy_jobs.build_splits(tmp_path_factory.mktemp("splits"))


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
