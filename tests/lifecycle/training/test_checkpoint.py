import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
import toy_jobs

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import (
    WeightsNotFiniteError,
    load_checkpoint,
    load_newest,
    parameters_sha256,
    save_checkpoint,
    state_dict,
    write_checkpoint,
)
from trainworthy.lifecycle.engine.training.checkpoints.made_with import goes_on_by, made_in_words, made_until
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.protocol.training_figures import MadeBy
from trainworthy.lifecycle.storage.checkpoints import KEEP
from trainworthy.lifecycle.storage.durable.folder import FolderStore


def state_at(step: int):
    """A tiny state whose weights tell its step; its optimizer has moments."""
    state = toy_jobs.plain_state(value=float(step))
    state.model(torch.ones(2, 3)).sum().backward()
    state.optimizers[0].step()
    state.step = step
    state.curve.add(step, 7, 0.5, 0.3, 0.1, window=2, steps_per_epoch=100)
    return state


@pytest.fixture
def folder(tmp_path) -> Path:
    """Checkpoints of steps 10 and 20 of the training `mine`."""
    for step in (10, 20):
        save_checkpoint(tmp_path / "checkpoints", "mine", state_at(step))
    return tmp_path / "checkpoints"


def restored(folder: Path, identity: str = "mine"):
    state = toy_jobs.plain_state()
    found, notes = load_newest([FolderStore(folder)], identity, state)
    return state, found, notes


def test_checkpoint_gives_back_weights_optimizer_curve_and_random_numbers(tmp_path):
    saved = state_at(30)
    saved.prefix_sha256 = "p"
    reference = save_checkpoint(tmp_path, "mine", saved)
    drawn = torch.rand(3)
    state = toy_jobs.plain_state()
    load_checkpoint(Path(reference.path), "mine", state, reference.sha256)
    assert parameters_sha256(state.model) == parameters_sha256(saved.model)
    assert torch.equal(drawn, torch.rand(3))
    assert (state.step, state.prefix_sha256) == (30, "p")
    assert state.curve.state_dict() == saved.curve.state_dict()
    moments, expected = (one.optimizers[0].state_dict()["state"] for one in (state, saved))
    assert all(torch.equal(moments[0][name], expected[0][name]) for name in expected[0])


class Counted:
    """A part that only some trainings have."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_checkpoint_gives_back_the_parts_that_only_some_trainings_have(tmp_path):
    saved, state = state_at(30), toy_jobs.plain_state()
    saved.also["counted"], state.also["counted"] = Counted(4), Counted()
    reference = save_checkpoint(tmp_path, "mine", saved)
    load_checkpoint(Path(reference.path), "mine", state)
    assert state.also["counted"].count == 4


def test_checkpoint_without_a_part_that_the_training_has_is_refused_and_loads_nothing(folder):
    state = toy_jobs.plain_state()
    state.also["counted"] = Counted()
    before = parameters_sha256(state.model)
    with pytest.raises(CheckpointError, match=r"other parts than this training has\n.*\[\] instead of \['counted'\]"):
        load_checkpoint(folder / "step-00000020", "mine", state)
    assert parameters_sha256(state.model) == before


def test_newest_checkpoint_is_loaded_without_a_note(folder):
    state, found, notes = restored(folder)
    assert (state.step, found, notes) == (20, True, ())


def test_folder_without_checkpoints_is_a_fresh_start(tmp_path):
    state, found, notes = restored(tmp_path / "none")
    assert (state.step, found, notes) == (0, False, ())


def test_last_checkpoints_only_are_kept(folder):
    save_checkpoint(folder, "mine", state_at(30))
    assert [path.name for path in sorted(folder.iterdir())] == ["step-00000020", "step-00000030"]
    assert KEEP == 2


def flip_byte(path: Path) -> None:
    content = bytearray((path / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "state.pt").write_bytes(content)


def truncate(path: Path) -> None:
    content = (path / "state.pt").read_bytes()
    (path / "state.pt").write_bytes(content[: len(content) // 2])


def make_foreign(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_bytes(canonical_json({**manifest, "identity": "another"}))


DAMAGES = {
    "bytes were changed": flip_byte,
    "bytes were changed ": truncate,
    "bytes were changed  ": lambda path: (path / "state.pt").unlink(),
    "manifest is missing": lambda path: (path / "manifest.json").unlink(),
    "manifest is missing or damaged": lambda path: (path / "manifest.json").write_text("{"),
    "belongs to another training": make_foreign,
}


@pytest.mark.parametrize(("told", "damage"), DAMAGES.items())
def test_damaged_checkpoint_is_skipped_for_the_one_before_and_told(folder, told, damage):
    damage(folder / "step-00000020")
    state, found, notes = restored(folder)
    assert found
    assert state.step == 10
    assert parameters_sha256(state.model) == parameters_sha256(state_at(10).model)
    assert len(notes) == 1
    assert "step-00000020" in notes[0]
    assert told.strip() in notes[0]


@pytest.mark.parametrize("damage", DAMAGES.values())
def test_checkpoints_that_are_all_damaged_are_an_error_and_never_a_fresh_start(folder, damage):
    for path in folder.iterdir():
        damage(path)
    with pytest.raises(CheckpointError, match="every checkpoint") as caught:
        restored(folder)
    assert len(caught.value.value) == 2  # pyright: ignore[reportArgumentType]


def test_half_written_checkpoint_is_not_seen(folder):
    shutil.copytree(folder / "step-00000020", folder / ".writing-00000030")
    state, _, notes = restored(folder)
    assert (state.step, notes) == (20, ())


class Payload:
    def __reduce__(self):
        return Path.touch, (Path("planted"),)


def test_planted_pickle_does_not_run_even_with_a_fitting_hash(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = folder / "step-00000020"
    for write in (torch.save, lambda value, to: to.write_bytes(pickle.dumps(value))):
        write({"model": Payload()}, path / "state.pt")
        manifest = {"identity": "mine", "step": 20, "sha256": sha256_file(path / "state.pt")}
        (path / "manifest.json").write_bytes(canonical_json(manifest))
        state, _, notes = restored(folder)
        assert not Path("planted").exists()
        assert state.step == 10
        assert "no plain state" in notes[0]


def test_checkpoint_that_is_not_the_one_on_record_is_refused(folder):
    with pytest.raises(CheckpointError, match="not the one on record"):
        load_checkpoint(folder / "step-00000020", "mine", toy_jobs.plain_state(), "0" * 64)


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    state = toy_jobs.plain_state(value=float("nan"))
    with pytest.raises(WeightsNotFiniteError, match="not finite"):
        save_checkpoint(tmp_path, "mine", state)
    assert list(tmp_path.iterdir()) == []


def test_parameters_hash_tells_one_bit_and_a_buffer_apart():
    model = torch.nn.BatchNorm1d(3)
    hashes = {parameters_sha256(model)}
    model.weight.data[0] = torch.nextafter(model.weight.data[0], torch.tensor(2.0))
    hashes.add(parameters_sha256(model))
    assert model.running_mean is not None
    model.running_mean[0] = 1e-30
    hashes.add(parameters_sha256(model))
    assert len(hashes) == 3


def test_checkpoint_with_or_without_what_only_watches_is_loaded(tmp_path):
    watched, plain = state_at(30), state_at(30)
    watched.also["progressive"] = Counted(4)
    with_it, without = (save_checkpoint(tmp_path / name, "mine", s) for name, s in (("w", watched), ("p", plain)))
    state = toy_jobs.plain_state()
    load_checkpoint(Path(with_it.path), "mine", state)
    assert state.step == 30
    state.also["progressive"] = Counted(1)
    load_checkpoint(Path(without.path), "mine", state)
    assert state.also["progressive"].count == 1


def test_checkpoint_of_an_earlier_version_whose_manifest_names_one_file_still_counts(folder):
    path = folder / "step-00000020"
    manifest = json.loads((path / "manifest.json").read_text())
    (state_sha256,) = manifest.pop("files").values()
    (path / "manifest.json").write_bytes(canonical_json(manifest | {"sha256": state_sha256}))
    assert restored(folder)[0].step == 20
    (path / "state.pt").write_bytes(b"changed")
    assert restored(folder)[0].step == 10


def test_file_that_another_tool_left_in_a_checkpoint_is_no_damage_and_a_missing_one_is(folder):
    (folder / "step-00000020" / ".nfs0001").write_text("left by the network")
    assert restored(folder)[0].step == 20
    (folder / "step-00000020" / "state.pt").unlink()
    assert restored(folder)[0].step == 10


def test_who_made_a_training_is_told_by_numbers_of_processes_and_only_if_they_made_an_update():
    begun = goes_on_by((), 0, 2)
    assert begun == (MadeBy(first_step=1, processes=2),)
    assert goes_on_by(begun, 5, 2) == begun
    fewer = goes_on_by(begun, 5, 1)
    assert fewer == (*begun, MadeBy(first_step=6, processes=1))
    # Back before the change, or at an end that leaves nothing to do: it made none.
    assert goes_on_by(fewer, 4, 2) == begun
    assert made_until(goes_on_by(fewer, 9, 2), 9) == fewer
    assert made_in_words(goes_on_by(fewer, 9, 2)) == (
        "trained by 2 processes, by 1 from update 6 on, by 2 from update 10 on, each on its share of every batch",
    )
    assert made_in_words(goes_on_by((), 0, 1)) == ()


def test_checkpoint_carries_who_made_it_and_one_of_before_says_what_it_knows(tmp_path):
    state = toy_jobs.plain_state()
    state.made_by = (MadeBy(first_step=1, processes=2), MadeBy(first_step=6, processes=1))
    again = toy_jobs.plain_state()
    load_checkpoint(Path(save_checkpoint(tmp_path / "a", "i", state).path), "i", again)
    assert again.made_by == state.made_by
    saved = {name: part for name, part in state_dict(state).items() if name != "made_by"}
    load_checkpoint(Path(write_checkpoint(tmp_path / "b", "i", saved).path), "i", again)
    assert again.made_by == (MadeBy(first_step=1, processes=1),)
