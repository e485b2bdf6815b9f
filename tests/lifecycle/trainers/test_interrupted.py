"""A training by a script that is asked to end: its checkpoint, and how it goes on."""

import json
import os
import signal
import time
from pathlib import Path

import own_trainers
import pytest
import toy_jobs
from own_trainers import asked_at

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import CheckpointError, TrainingError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED
from trainworthy.lifecycle.protocol.jobs import Interruptions, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult

HAND = own_trainers.documented("hand")


@pytest.mark.parametrize("call", [28, 29, 30, 31])
def test_request_to_end_at_any_moment_costs_no_update(splits, tmp_path, call):
    calls = []
    with pytest.raises(PreemptedError, match="a checkpoint is written"):
        run_stage(by_hand(splits, tmp_path), lambda: calls.append(0) or len(calls) >= call)


def checkpoints(job: TrainJob) -> list[Path]:
    return sorted((Path(job.out) / "checkpoints").iterdir())


def by_hand(splits: Path, tmp_path: Path, *replacements: tuple[str, str], **fields) -> TrainJob:
    folder = own_trainers.use_case(tmp_path / "toy", HAND, *replacements)
    return own_trainers.job(splits, folder, tmp_path / "out", "pilot", **fields)


@pytest.fixture
def interrupted(splits, tmp_path) -> TrainJob:
    """A stage that was asked to end and has two checkpoints."""
    job = by_hand(splits, tmp_path)
    with pytest.raises(PreemptedError, match="a checkpoint is written"):
        run_stage(job, asked_at(40))
    assert len(checkpoints(job)) == 2
    return job


@pytest.mark.parametrize("way", own_trainers.NEEDS)
def test_script_that_is_asked_to_end_writes_a_checkpoint_and_goes_on_from_it(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way))
    job = own_trainers.job(splits, folder, tmp_path / "out", "pilot")
    with pytest.raises(PreemptedError, match="a checkpoint is written"):
        run_stage(job, asked_at(7))
    (path,) = checkpoints(job)
    assert not list(path.glob("**/.*"))
    result = run_stage(job)
    assert result.resumed_from_step == int(path.name.removeprefix("step-")) > 0
    assert (result.steps, result.alarm) == (result.planned_steps, None)
    whole = run_stage(job.model_copy(update={"out": str(tmp_path / "whole")}))
    assert [point.step for point in result.curve] == [point.step for point in whole.curve]
    assert (result.parameters_sha256 == whole.parameters_sha256) == (way != "Lightning")


SLEEP = "        __import__('time').sleep(0.02)\n"
# Slow enough to be met between two updates: before which line a script sleeps.
WAITS = {
    "hand": "        optimizer.zero_grad()\n",
    "Lightning": "        return loss_fn(self.network(inputs)",
    "transformers": '        return {"loss"',
}


@pytest.mark.parametrize(
    "way", ["hand", *(pytest.param(way, marks=pytest.mark.slow) for way in ("Lightning", "transformers"))]
)
def test_worker_with_a_script_that_gets_sigterm_ends_with_75_and_resumes(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way), (WAITS[way], SLEEP + WAITS[way]))
    job = own_trainers.job(splits, folder, tmp_path / "out", "pilot")
    deadline = time.monotonic() + 120
    with toy_jobs.forked_worker(job) as worker:
        while not (Path(job.out) / "checkpoints").is_dir() or not checkpoints(job):
            assert worker.poll() is None, toy_jobs.error_of(job)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(60) == EXIT_PREEMPTED
    told = json.loads((Path(job.out) / "error.json").read_text())
    assert told["problem"] == "preempted; a checkpoint is written"
    assert toy_jobs.run_worker(job)[0] == 0
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    assert 0 < result.resumed_from_step < result.steps == result.planned_steps


def test_damaged_checkpoint_is_passed_over_for_the_one_before(interrupted):
    older, newest = checkpoints(interrupted)
    state = newest / "files" / "state.pt"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    result = run_stage(interrupted)
    assert result.resumed_from_step == int(older.name.removeprefix("step-"))
    assert f"skipped checkpoint {newest.name}: the checkpoint's bytes were changed" in result.notes


def test_checkpoints_of_another_training_are_refused(interrupted):
    with pytest.raises(CheckpointError, match="damaged or of another training"):
        run_stage(interrupted.model_copy(update={"identity": "another"}))


def test_training_whose_machine_is_gone_resumes_from_the_durable_copy(splits, tmp_path):
    machine = Interruptions(durable=str(tmp_path / "durable"))
    job = by_hand(splits, tmp_path, interruptions=machine)
    with pytest.raises(PreemptedError):
        run_stage(job, asked_at(10))
    result = run_stage(job.model_copy(update={"out": str(tmp_path / "elsewhere" / "out")}))
    assert result.resumed_from_step > 0
    assert any("resumed from the copy" in note for note in result.notes)


def test_script_that_keeps_more_than_plain_values_is_told_so_and_nothing_is_unpickled(splits, tmp_path):
    odd = (
        "    first = session.resume(model=model, optimizer=optimizer)\n",
        "    class Odd:\n        state_dict = lambda self: {'odd': Exception('a pickled object')}\n"
        "        load_state_dict = print\n    first = session.resume(model=model, optimizer=optimizer, odd=Odd())\n",
    )
    saved = ("session.checkpoint(model=model, ", "session.checkpoint(odd=Odd(), model=model, ")
    job = by_hand(splits, tmp_path, odd, saved)
    with pytest.raises(PreemptedError):
        run_stage(job, asked_at(10))
    with pytest.raises(CheckpointError, match="more than plain values"):
        run_stage(job)


def test_script_that_goes_on_when_it_is_asked_to_end_is_ended_at_its_next_update(splits, tmp_path):
    job = by_hand(splits, tmp_path, ("        if session.should_stop:\n            break\n", ""))
    with pytest.raises(PreemptedError):
        run_stage(job, asked_at(10))
    with pytest.raises(PreemptedError, match="newest checkpoint is of step 0"):
        run_stage(
            by_hand(
                splits, tmp_path / "b", ("        session.checkpoint(model=model, optimizer=optimizer)\n", ""),
            ),
            asked_at(10),
        )  # fmt: skip


def test_script_that_makes_more_updates_than_planned_is_told_what_to_mend(splits, tmp_path):
    more = ("range(first, session.steps)", "range(first, session.steps + 1)")
    job = by_hand(splits, tmp_path, more, ("        if session.should_stop:\n            break\n", ""))
    with pytest.raises(TrainingError, match="made another update after all") as caught:
        run_stage(job)
    assert "session.should_stop" in caught.value.fix


def test_first_look_after_an_interruption_comes_when_it_would_have_without_one(splits, tmp_path):
    rows = "        rows = batch(session, step)\n"
    killed = "        if step == 25:\n            torch.nn.init.zeros_(model.layers[0].weight)\n"
    killed += "            torch.nn.init.constant_(model.layers[0].bias, -100.0)\n"
    job = by_hand(splits, tmp_path, (rows, killed + rows))
    whole = run_stage(job.model_copy(update={"out": str(tmp_path / "whole")}))
    with pytest.raises(PreemptedError):
        run_stage(job, asked_at(30))
    resumed = run_stage(job)
    assert 25 < resumed.resumed_from_step < 40
    found = [[(alarm.monitor, alarm.step) for alarm in result.alarms] for result in (whole, resumed)]
    assert found[0] == found[1]
    assert ("dead_layer", 60) in found[0]
