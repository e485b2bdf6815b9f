"""Copies of checkpoints on storage that outlives the machine."""

import json
from pathlib import Path

import pytest
import test_checkpoint
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.checkpoints import writer as writer_module
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.checkpoints.writer import Writer
from trainworthy.lifecycle.errors import LeaseLostError
from trainworthy.lifecycle.failure import EXIT_LEASE_LOST
from trainworthy.lifecycle.protocol.jobs import DURABLE_SECONDS, Interruptions, JobFile
from trainworthy.lifecycle.storage.checkpoints import checkpoints_in, copy_checkpoint
from trainworthy.lifecycle.storage.durable import lease
from trainworthy.lifecycle.storage.durable.folder import NAME, FolderHolder, FolderStore
from trainworthy.lifecycle.worker import main

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
    writer = Writer(tmp_path / "checkpoints", "mine", FolderStore(tmp_path / "file"))
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


class Machine:
    """A machine with a disk of its own that trains the same."""

    def __init__(self, folder, name: str):
        self.out, self.durable, self.waited = folder / name, folder / "durable", 0.0
        self.out.mkdir()

    def holds(self, meanwhile=lambda: None):
        def wait(seconds: float) -> None:
            self.waited += seconds
            meanwhile()

        return lease.held_lease(FolderHolder(self.durable), self.out, wait)


def holder(durable) -> str:
    return json.loads((durable / NAME).read_text())["owner"]


def killed(machine: Machine) -> None:
    """Its lease stays as it was left."""
    with machine.holds():
        left = (machine.durable / NAME).read_bytes()
    (machine.durable / NAME).write_bytes(left)


def test_second_machine_is_refused_while_the_first_one_is_alive(tmp_path):
    first, second = Machine(tmp_path, "first"), Machine(tmp_path, "second")
    with first.holds() as check:
        name = holder(first.durable)

        def renewed() -> None:
            found = json.loads((first.durable / NAME).read_text())
            (first.durable / NAME).write_text(json.dumps(found | {"renewal": found["renewal"] + 1}))

        with pytest.raises(LeaseLostError, match="writes there now"), second.holds(renewed):
            pytest.fail("two machines hold one lease")
        check()
        assert holder(first.durable) == name
    assert not (first.durable / NAME).exists()


def test_machine_that_was_killed_is_taken_over_and_ends_when_it_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "EXPIRES_SECONDS", 0.06)
    first, second = Machine(tmp_path, "first"), Machine(tmp_path, "second")
    killed(first)
    back = lease.Lease(FolderHolder(first.durable), holder(first.durable))
    with second.holds() as check:
        assert second.waited == pytest.approx(0.06)
        back.start()
        back.join(60)
        assert not back.is_alive()
        with pytest.raises(LeaseLostError, match="took it over"):
            back.check()
        back.end()
        check()
        assert holder(second.durable) != back._owner


def test_training_goes_on_at_once_in_its_own_folder_and_after_one_that_let_go(tmp_path):
    first, second = Machine(tmp_path, "first"), Machine(tmp_path, "second")
    killed(first)
    with first.holds():
        pass
    with second.holds():
        pass
    assert (first.waited, second.waited) == (0, 0)


def test_half_written_lease_is_nobodys(tmp_path):
    first = Machine(tmp_path, "first")
    first.durable.mkdir()
    (first.durable / NAME).write_text('{"owner": ')
    with first.holds() as check:
        check()


def test_worker_beside_another_machine_writes_no_copy_and_ends_with_its_code(splits, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "EXPIRES_SECONDS", 60.0)
    job = toy_jobs.train_job(
        splits, tmp_path / "out", interruptions=Interruptions(durable=str(tmp_path / "durable")), identity="run:smoke"
    )
    other = Machine(tmp_path, "other")
    other.durable = tmp_path / "durable" / "run" / "out"
    with other.holds() as check:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "job.json").write_text(JobFile(job=job).model_dump_json())
        assert main(["--job", str(tmp_path / "out" / "job.json")]) == EXIT_LEASE_LOST
        check()
        assert checkpoints_in(other.durable) == []
    assert not (tmp_path / "out" / "result.json").exists()
    assert main(["--job", str(tmp_path / "out" / "job.json")]) == 0
    assert len(checkpoints_in(other.durable)) == 1
    assert not (other.durable / NAME).exists()
