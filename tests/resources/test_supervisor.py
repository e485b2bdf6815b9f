"""Real workers that are killed, stopped and run out of memory: each class of end is followed by what it should be."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from planted_training import in_training, planted

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))

from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("one_thread")


def run(job: TrainJob, seconds_left: float = float("inf")) -> tuple[TrainResult, list[str]]:
    """The supervised answer and the lines that were told."""
    lines: list[str] = []
    answer = supervise(job, lambda: run_worker(job, grace_seconds=1.0), lines.append, seconds_left)
    assert isinstance(answer, TrainResult)
    return answer, lines


@pytest.fixture(scope="module")
def uninterrupted(splits, tmp_path_factory) -> TrainResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        answer = run_worker(planted(splits, tmp_path_factory.mktemp("whole")))
    assert isinstance(answer, TrainResult)
    return answer


def equal(one: TrainResult, other: TrainResult) -> bool:
    """Weights, curve and metrics are equal; the artifact holds the code, in which the faults are."""

    def told(result: TrainResult) -> tuple:
        metrics = {name: value for name, value in result.metrics.items() if name.startswith("val_")}
        return result.steps, result.parameters_sha256, result.prefix_sha256, result.curve, metrics

    return told(one) == told(other)


# Where the worker is killed, once, with the step from which the next one has to go on at least.
PHASES = {
    "prepare": ("    return {name: [float(", "    if once():\n        die()", 0),
    # Not 15: a checkpoint that is due while another is written waits for a later step. A busy machine had one of 14.
    "training": (*in_training("    if once(17):\n        die(after=1.0)"), 10),
    # The thread that writes is killed under the name that a checkpoint has until it is whole.
    "checkpoint": (
        "SHOPS = [",
        "_save = torch.save\n\n\ndef _half(saved, file, **how):\n    _save(saved, file, **how)\n"
        "    if isinstance(saved, dict) and 'optimizers' in saved and once(3):\n"
        "        file.flush()\n        die()\n\n\n"
        "torch.save = _half\n",
        10,
    ),
    "validation": ("    return torch.sigmoid(outputs)", "    if once():\n        die()", 38),
    # The second time that predictions are asked for: calibration, in the export.
    "export": ("    return torch.sigmoid(outputs)", "    if once(2):\n        die()", 38),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_worker_killed_in_any_phase_ends_by_itself_as_the_uninterrupted_one(uninterrupted, splits, tmp_path, phase):
    place, fault, least = PHASES[phase]
    job = planted(splits, tmp_path, (place, fault))
    answer, lines = run(job)
    assert [attempt.cause for attempt in answer.attempts] == ["killed"]
    assert answer.attempts[0].to_step >= least
    assert answer.resumed_from_step == answer.attempts[0].to_step
    assert len(lines) == 1
    assert "SIGKILL" in lines[0]
    assert "1 of 3" in lines[0]
    assert equal(answer, uninterrupted)
    assert not list((tmp_path / "out").rglob(".writing-*"))


def test_preemption_and_a_kill_are_told_apart_and_the_training_goes_on_after_both(splits, tmp_path):
    fault = "    if once(7):\n        die(signal.SIGTERM)\n    if once(12):\n        die()"
    job = planted(splits, tmp_path, in_training(fault), stage="smoke")
    answer, lines = run(job)
    assert [attempt.cause for attempt in answer.attempts] == ["preempted", "killed"]
    assert answer.attempts[0].to_step > 0
    assert answer.steps == answer.planned_steps
    assert ["of 3" in line for line in lines] == [False, True]
    assert sum("went on after" in note for note in answer.notes) == 2


def test_training_that_runs_out_of_memory_is_not_tried_again_and_gets_numbers(splits, tmp_path):
    job = planted(splits, tmp_path, in_training("    if once(7):\n        torch.empty(2**58)"), stage="smoke")
    with pytest.raises(WorkerError) as caught:
        run(job)
    error = caught.value
    assert (error.cause, error.exit_code, len(error.attempts)) == ("out_of_memory", 71, 1)
    assert "batch_size: 16 and training.accumulate: 2 keep the update's 32 rows" in error.fix
    assert "model.py" in str(error.value)


def test_memory_that_ends_before_the_first_update_offers_no_batch(splits, tmp_path):
    place = "    return {name: [float("
    job = planted(splits, tmp_path, (place, "    raise MemoryError('rows do not fit')"), stage="smoke")
    with pytest.raises(WorkerError, match="rows do not fit") as caught:
        run(job)
    assert caught.value.cause == "out_of_memory"
    assert "batch_size" not in caught.value.fix


def test_worker_that_lost_its_lease_ends_before_its_next_checkpoint_and_is_not_tried_again(splits, tmp_path):
    taken = "pathlib.Path(sys.argv[-1]).with_name('.lock').write_text('process 7 on other since 1')"
    fault = f"    if once(7):\n        import sys\n\n        {taken}\n        time.sleep(1.1)"
    job = planted(splits, tmp_path, in_training(fault), stage="smoke")
    with pytest.raises(WorkerError, match="took the folder's lock") as caught:
        run(job)
    assert (caught.value.cause, len(caught.value.attempts)) == ("lease_lost", 1)
    assert caught.value.attempts[0].to_step == 5
    assert not (tmp_path / "out" / "result.json").exists()


def test_budget_that_is_used_up_ends_the_tries(splits, tmp_path):
    job = planted(splits, tmp_path, ("    return {name: [float(", "    die(signal.SIGTERM)"), stage="smoke")
    with pytest.raises(WorkerError, match="the budget of the run") as caught:
        run(job, seconds_left=0.001)
    assert len(caught.value.attempts) == 1


# A run's process without Dagster: as the step's process does, until it is told to end.
PARENT = """
import pathlib, sys
from trainworthy.lifecycle.protocol.jobs import JobFile
from trainworthy.resources.worker_process import run_worker
run_worker(JobFile.model_validate_json(pathlib.Path(sys.argv[1]).read_text()).job, grace_seconds=120)
"""


def start_parent(job: TrainJob, path: Path) -> subprocess.Popen[str]:
    path.write_text(JobFile(job=job).model_dump_json())
    command, environment = [sys.executable, "-c", PARENT, str(path)], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


@pytest.mark.slow
def test_second_run_never_trains_beside_a_cancelled_one_whose_worker_ignores_sigterm(uninterrupted, splits, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("")
    fault = (
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"    time.sleep(0.2 if pathlib.Path({str(slow)!r}).exists() else 0)"
    )
    job = planted(splits, tmp_path, in_training(fault))
    first = start_parent(job, tmp_path / "first.json")
    second = None
    try:
        checkpoints = tmp_path / "out" / "checkpoints"
        until(lambda: list(checkpoints.glob("step-*")))
        started = psutil.Process(first.pid).children(recursive=True)
        (worker,) = [process for process in started if "trainworthy.lifecycle.worker" in process.cmdline()]
        first.send_signal(signal.SIGINT)
        second = start_parent(job, tmp_path / "second.json")
        assert second.stderr is not None
        line = second.stderr.readline()
        assert f"another run does the same work (process {first.pid} on " in line
        before = max(checkpoints.glob("step-*")).name
        until(lambda: max(checkpoints.glob("step-*")).name > before)
        # The cancelled run's worker trains on in its grace, and the second run has started none.
        assert worker.is_running()
        assert psutil.Process(second.pid).children() == []
        first.send_signal(signal.SIGINT)
        first.wait(60)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        slow.unlink()
        _, told = second.communicate(timeout=200)
        assert second.returncode == 0, told
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
    answer = run_worker(job)
    assert isinstance(answer, TrainResult)
    assert answer.resumed_from_step > 0
    assert equal(answer, uninterrupted)
