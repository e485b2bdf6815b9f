"""Copies of checkpoints on storage that outlives the machine."""

from pathlib import Path

import pytest
import test_checkpoint
import toy_jobs

from lifecycle.training.checkpoints import writer as writer_module
from lifecycle.training.checkpoints.checkpoint import checkpoints_in, state_dict, write_checkpoint
from lifecycle.training.checkpoints.durable import copy_checkpoint
from lifecycle.training.checkpoints.interval import DURABLE_SECONDS, Interruptions
from lifecycle.training.checkpoints.writer import Writer
from lifecycle.training.stage import run_stage

state_at = test_checkpoint.state_at


def test_copy_lies_whole_beside_the_newest_ones_and_is_refused_if_it_differs(tmp_path, monkeypatch):
    for step in (10, 20, 30):
        reference = write_checkpoint(tmp_path / "local", "mine", state_dict(state_at(step)))
        copy_checkpoint(Path(reference.path), tmp_path / "durable")
    assert [path.name for path in checkpoints_in(tmp_path / "durable")] == ["step-00000030", "step-00000020"]
    (Path(reference.path) / "state.pt").write_bytes(b"other")
    with pytest.raises(OSError, match="the copy differs"):
        copy_checkpoint(Path(reference.path), tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_durable_storage_that_is_away_is_told_and_ends_the_training_only_if_it_stays_away(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_text("no folder")
    writer = Writer(tmp_path / "checkpoints", "mine", tmp_path / "file")
    writer.begin(state_at(1))
    writer.finish()
    assert "step-00000001 could not be copied" in capsys.readouterr().err
    later = writer_module.time.monotonic() + DURABLE_SECONDS + 1
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: later)
    writer.begin(state_at(2))
    with pytest.raises(OSError, match="file"):
        writer.finish()
    writer.close()


def test_copies_of_two_seeds_of_one_stage_lie_apart(splits, tmp_path):
    machine = Interruptions(durable=str(tmp_path / "durable"))
    for seed, name in ((7, "smoke"), (8, "smoke_seed_8")):
        spec = toy_jobs.spec_with(training={"seed": seed})
        job = toy_jobs.train_job(splits, tmp_path / name, spec=spec, identity=f"run:{name}", interruptions=machine)
        assert run_stage(job).resumed_from_step == 0
    copies = {path.name: len(checkpoints_in(path)) for path in (tmp_path / "durable" / "run").iterdir()}
    assert copies == {"smoke": 1, "smoke_seed_8": 1}
