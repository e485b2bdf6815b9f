"""Pilots of a network of masks: `references` passes where it sees squares, and neither without its pictures nor with
the masks of others."""

from pathlib import Path

import pytest
from mask_jobs import job, shuffled, write_files

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.results import TrainResult


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_files(tmp_path_factory.mktemp("masks"))


def learned(result: TrainResult):
    return next(check for check in training_checks("pilot", result) if check.name == "references")


def test_network_that_sees_squares_passes(files, tmp_path):
    result = run_stage(job(files, tmp_path / "sees"))
    assert learned(result).status == "pass"
    assert result.metrics["val_mean_iou"] > 0.7
    assert result.metrics["val_loss"] < 0.4 * result.metrics["val_loss_of_prior"]


def test_network_that_knows_only_where_squares_lie_has_learned_nothing(files, tmp_path):
    result = run_stage(job(files, tmp_path / "blind", seen=0))
    assert result.metrics["val_loss"] < 1.1 * result.metrics["val_loss_of_prior"]
    assert learned(result).status == "fail"


def test_masks_of_other_pictures_never_pass(files, tmp_path):
    found = learned(run_stage(job(files, tmp_path / "shuffled", training=shuffled(files))))
    assert found.status == "fail"
    assert found.fix in (fix_of("references", "rows"), fix_of("references", "network"))


def test_masks_that_are_read_batch_by_batch_train_the_same(files, tmp_path):
    whole, loaded = (
        run_stage(job(files, tmp_path / tensors, tensors=tensors, epochs=1, batch_size=64))
        for tensors in ("ahead", "per_batch")
    )
    for name in ("val_loss", "val_mean_iou"):
        assert loaded.metrics[name] == whole.metrics[name]
    assert loaded.prefix_sha256 == whole.prefix_sha256


# The points of a picture, one column after the other in the place of one row after the other.
SCRAMBLED = ("[:, None]}", ".reshape(-1, 4, 4, 4, 4).permute(0, 2, 4, 1, 3).reshape(-1, 1, 16, 16)}")


def test_pilot_whose_pictures_lose_their_places_on_the_way_to_tensors_is_told_so(files, tmp_path):
    found = learned(run_stage(job(files, tmp_path / "scrambled", SCRAMBLED)))
    assert found.status == "fail"
    assert found.fix.startswith("look at to_tensors and fit_preprocessing"), found
