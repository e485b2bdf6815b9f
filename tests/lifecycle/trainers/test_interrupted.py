"""A training by a script that is asked to end: its checkpoint, and how it goes on."""

from pathlib import Path

import own_trainers
import pytest

from lifecycle.jobs import TrainJob
from lifecycle.training.flight import PreemptedError
from lifecycle.training.stage import run_stage

WAYS = list(own_trainers.NEEDS)


def asked_at(step: int):
    """A should_stop that asks for an end after that many updates."""
    calls = []

    def should_stop() -> bool:
        calls.append(0)
        return len(calls) >= step

    return should_stop


def steps_of(job: TrainJob) -> list[str]:
    return sorted(path.name for path in (Path(job.out) / "checkpoints").iterdir())


@pytest.mark.parametrize("way", WAYS)
def test_script_that_is_asked_to_end_writes_a_checkpoint_and_goes_on_from_it(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way))
    job = own_trainers.job(splits, folder, tmp_path / "out", "pilot")
    with pytest.raises(PreemptedError, match="a checkpoint is written"):
        run_stage(job, asked_at(14))
    (name,) = steps_of(job)
    result = run_stage(job)
    assert result.resumed_from_step == int(name.removeprefix("step-")) > 0
    assert (result.steps, result.alarm) == (result.planned_steps, None)
    whole = run_stage(job.model_copy(update={"out": str(tmp_path / "whole")}))
    print(way, result.parameters_sha256 == whole.parameters_sha256, result.curve == whole.curve)
    assert [point.step for point in result.curve] == [point.step for point in whole.curve]
