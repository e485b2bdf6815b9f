"""A training that is interrupted anywhere and started again ends as the uninterrupted one, bit for bit."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED
from trainworthy.lifecycle.protocol.jobs import Interruptions, TrainJob
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsLine, read_from, windows_in
from trainworthy.lifecycle.worker import NOTICE

# About 1,100 updates, so that there is time to interrupt them.
SPEC = toy_jobs.spec_with(training={"batch_size": 32, "checkpoint_every_steps": 50})
CONTINUED = toy_jobs.spec_with(
    training={"batch_size": 32, "checkpoint_every_steps": 50}, stages={"mode": "continue", "smoke": 0.1, "pilot": 0.5}
)


def answer(job: TrainJob) -> TrainResult:
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    return result


def outcome(result: TrainResult) -> dict:
    """All that must be equal; paths, times, memory and the way there may differ.

    So may what is said of growing memory: it is the process's, and a test's process has trained before.
    """
    left_out = {"alarms", "artifact", "checkpoint", "gpu_seconds", "resumed_from_step", "notes", "metrics", "seconds"}
    metrics = {name: value for name, value in result.metrics.items() if name != "peak_memory_bytes"}
    alarms = [alarm for alarm in result.alarms if alarm.monitor != "memory_growth"]
    times = {"references": {"arms": {"__all__": {"cpu_seconds"}}}}
    kept = result.model_dump(exclude={**dict.fromkeys(left_out, True), **times})
    return {**kept, "metrics": metrics, "alarms": alarms}


def interrupt(job: TrainJob, step: int, number: signal.Signals) -> int:
    """Start the worker and send it the signal once a checkpoint of `step` or later is there; its exit code."""
    return interrupted(job, step, lambda pid: os.kill(pid, number))


def interrupted(job: TrainJob, step: int, how: Callable[[int], object]) -> int:
    """Start the worker and end its process by `how` once a checkpoint of `step` or later is there; its exit code."""
    folder, deadline = Path(job.out) / "checkpoints", time.monotonic() + 60
    with toy_jobs.forked_worker(job) as worker:
        while not any(path.name >= f"step-{step:08d}" for path in folder.glob("step-*")):
            assert worker.poll() is None, toy_jobs.error_of(job)
            assert time.monotonic() < deadline
            time.sleep(0.001)
        how(worker.pid)
        return worker.wait(60)


@pytest.fixture(scope="module")
def uninterrupted(splits, tmp_path_factory) -> TrainResult:
    job = toy_jobs.train_job(splits, tmp_path_factory.mktemp("whole"), "full", spec=SPEC)
    assert toy_jobs.run_worker(job) == (0, {})
    return answer(job)


def test_worker_killed_three_times_ends_as_the_uninterrupted_one(uninterrupted, splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=SPEC)
    for step in (50, 400, 750):
        assert interrupt(job, step, signal.SIGKILL) == -signal.SIGKILL
        assert read_result(Path(job.out), job) is None
    assert toy_jobs.run_worker(job) == (0, {})
    result = answer(job)
    assert 750 <= result.resumed_from_step < result.steps
    assert outcome(result) == outcome(uninterrupted)
    # Each window is there, whichever attempt trained it; those trained twice are there twice, and equal.
    found, _ = read_from(tmp_path / "out" / FILE_NAME, 0)
    lines = [line.point for line in found if isinstance(line, MetricsLine) and line.point]
    assert [line.point for line in windows_in(tmp_path / "out" / FILE_NAME) if line.point] == list(result.curve)
    assert {point.step: point for point in lines} == {point.step: point for point in result.curve}
    assert len({point.model_dump_json() for point in lines}) == len(result.curve)
    assert 0 <= result.seconds.replayed < result.seconds.wall
    assert 0 < result.seconds.goodput < 1


@pytest.fixture(scope="module")
def preempted(splits, tmp_path_factory) -> Path:
    """The folder of a worker that was asked to end after step 300, beside its durable copies."""
    folder = tmp_path_factory.mktemp("preempted")
    assert interrupt(with_copies(splits, folder), 300, signal.SIGTERM) == EXIT_PREEMPTED
    return folder


def with_copies(splits: Path, folder: Path) -> TrainJob:
    machine = Interruptions(durable=str(folder / "durable"))
    return toy_jobs.train_job(splits, folder / "out", "full", spec=SPEC, interruptions=machine)


def test_worker_asked_to_end_writes_a_checkpoint_and_resumes_equal(uninterrupted, preempted, splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=SPEC)
    shutil.copytree(preempted / "out", job.out)
    stopped_at = max(int(path.name.removeprefix("step-")) for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert stopped_at >= 300
    assert toy_jobs.run_here(job)[0] == 0
    assert answer(job).resumed_from_step == stopped_at
    assert outcome(answer(job)) == outcome(uninterrupted)


def test_notice_of_a_spot_machine_is_as_a_signal_and_an_old_one_is_not_obeyed_again(
    uninterrupted, splits, tmp_path, monkeypatch
):
    notice = tmp_path / "notice"
    monkeypatch.setenv(NOTICE, str(notice))
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=SPEC)
    assert interrupted(job, 300, lambda pid: notice.touch()) == EXIT_PREEMPTED
    assert notice.exists()
    assert toy_jobs.run_here(job)[0] == 0
    assert answer(job).resumed_from_step >= 300
    assert outcome(answer(job)) == outcome(uninterrupted)


# In the thread that writes, at the first sync of the second checkpoint: its state is written, and has no manifest yet.
DIES_WRITING = """import os, signal
_fsync, _counted = os.fsync, []
def _dies(file):
    _counted.append(file)
    if len(_counted) == 5 and not os.path.exists({flag!r}):
        open({flag!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    _fsync(file)
os.fsync = _dies
def build_model("""


def test_worker_killed_while_it_writes_beside_the_training_ends_as_the_uninterrupted_one(
    uninterrupted, splits, tmp_path
):
    dies = ("def build_model(", DIES_WRITING.format(flag=str(tmp_path / "flag")))
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", dies)
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=SPEC, use_case=use_case)
    with toy_jobs.forked_worker(job) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    left = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert [name.partition("step")[0] for name in left] == [".writing-", ""]
    assert toy_jobs.run_here(job) == (0, {})
    result = answer(job)
    assert 0 < result.resumed_from_step < result.steps
    # The network is the same, from another model.py.
    assert (result.parameters_sha256, result.curve) == (uninterrupted.parameters_sha256, uninterrupted.curve)
    assert not list((tmp_path / "out" / "checkpoints").glob(".writing-*"))


def test_training_whose_machine_is_gone_resumes_from_the_durable_copies(uninterrupted, preempted, splits, tmp_path):
    shutil.copytree(preempted / "durable", tmp_path / "durable")
    job = with_copies(splits, tmp_path)
    assert toy_jobs.run_here(job) == (0, {})
    result = answer(job)
    assert result.resumed_from_step >= 300
    assert any("resumed from the copy" in note for note in result.notes)
    assert outcome(result) == outcome(uninterrupted)


def test_damaged_newest_checkpoint_costs_steps_and_changes_nothing(uninterrupted, splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=SPEC)
    assert interrupt(job, 200, signal.SIGKILL) == -signal.SIGKILL
    newest = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    (newest / "state.pt").write_bytes(b"")
    assert toy_jobs.run_here(job) == (0, {})
    assert any(newest.name in note for note in answer(job).notes)
    assert outcome(answer(job)) == outcome(uninterrupted)


def test_rerun_of_the_first_steps_meets_the_prefix(uninterrupted, splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path, "full", spec=SPEC, stop_after_steps=uninterrupted.prefix_steps)
    result = run_stage(job)
    assert result.prefix_sha256 == uninterrupted.prefix_sha256 == result.parameters_sha256
    assert result.steps == uninterrupted.prefix_steps == 20
    assert result.checkpoint is None
    assert result.artifact is None


def test_another_seed_meets_no_hash_of_the_first(uninterrupted, splits, tmp_path):
    spec = toy_jobs.spec_with(training={"batch_size": 32, "checkpoint_every_steps": 50, "seed": 8})
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "full", spec=spec, stop_after_steps=20))
    assert result.prefix_sha256 != uninterrupted.prefix_sha256


@pytest.fixture(scope="module")
def one_run(splits, tmp_path_factory) -> TrainResult:
    """All of the continued run in one go."""
    return run_stage(toy_jobs.train_job(splits, tmp_path_factory.mktemp("one"), "full", spec=CONTINUED))


@pytest.mark.parametrize("killed", [None, "pilot"])
def test_three_stages_of_a_continued_run_equal_one_run(one_run, splits, tmp_path, killed):
    results: list[TrainResult] = []
    for stage in STAGES:
        start = results[-1].checkpoint if results else None
        job = toy_jobs.train_job(splits, tmp_path / stage, stage, spec=CONTINUED, start=start)
        if stage == killed:
            assert interrupt(job, 350, signal.SIGKILL) == -signal.SIGKILL
        results.append(run_stage(job))
    assert [result.rows for result in results] == [one_run.rows] * 3
    assert results[0].steps < results[1].steps < results[2].steps == one_run.steps
    assert results[1].resumed_from_step >= (350 if killed else results[0].steps)
    assert results[2].parameters_sha256 == one_run.parameters_sha256
    assert results[2].artifact_sha256 == one_run.artifact_sha256
    assert {result.prefix_sha256 for result in results} == {one_run.prefix_sha256}
    assert results[1].references is not None


def test_checkpoint_of_another_training_is_no_start(splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path / "smoke", "smoke", spec=CONTINUED, identity="another")
    smoke = run_stage(job)
    pilot = toy_jobs.train_job(splits, tmp_path / "pilot", "pilot", spec=CONTINUED, start=smoke.checkpoint)
    with pytest.raises(CheckpointError, match="belongs to another training"):
        run_stage(pilot)
