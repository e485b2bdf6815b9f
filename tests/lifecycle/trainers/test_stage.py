"""A stage that is trained by a script of the use case's own, by each of the three ways of the documentation."""

import own_trainers
import pytest

from lifecycle.jobs import TrainResult
from lifecycle.training.stage import run_stage

WAYS = list(own_trainers.NEEDS)


@pytest.mark.parametrize("way", WAYS)
def test_stage_by_each_documented_script_is_trained_validated_and_exported(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way))
    job = own_trainers.job(splits, folder, tmp_path / "out", "full")
    result = run_stage(job)
    assert isinstance(result, TrainResult)
    assert (result.steps, result.alarm, result.ended) == (result.planned_steps, None, "")
    assert result.metrics["val_loss"] < 0.9 * result.metrics["val_loss_of_prior"]
    assert result.artifact is not None
    assert {point.figure for point in result.curve} == {"training_loss"}
    assert result.curve[-1].loss < result.curve[0].loss
    assert result.prefix_sha256
    assert result.seconds.compute > 0
