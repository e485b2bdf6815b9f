"""Prepared features that are kept: equal bit for bit, verified, made again when damaged, pruned, never in a rerun."""

import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from toy_jobs import build_splits, spec_with, train_job

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.rows import features
from trainworthy.lifecycle.engine.training.rows.features import kept_features, prune
from trainworthy.lifecycle.protocol.jobs import KeptFeatures


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return build_splits(tmp_path_factory.mktemp("splits"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder where everything is kept, however quickly it was made."""
    monkeypatch.setattr(features, "WORTH_SECONDS", 0.0)
    return tmp_path / "features"


def tensors(value=1.0):
    return {"numbers": torch.full((100, 3), value), "half": torch.ones(100, dtype=torch.bfloat16)}


def counted(made, value=1.0):
    return lambda: made.append(1) or tensors(value)


def test_kept_features_are_made_once_and_come_back_equal(folder):
    made = []
    first, again = (kept_features(folder, "key", counted(made)) for _ in range(2))
    assert len(made) == 1
    assert (first[1], again[1]) == ((), ())
    assert all(torch.equal(first[0][name], again[0][name]) for name in tensors())
    assert again[0]["half"].dtype == torch.bfloat16
    assert [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "manifest", "half"])
def test_kept_features_that_are_damaged_are_made_again_and_said(folder, damage):
    made = []
    kept_features(folder, "key", counted(made))
    file = folder / "key" / "tensors.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if damage in ("flipped", "truncated"):
        file.write_bytes(bytes(data) if damage == "flipped" else bytes(data[:-10]))
    elif damage == "manifest":
        (folder / "key" / "manifest.json").write_text("{")
    else:
        (folder / "key" / "manifest.json").unlink()
    found, notes = kept_features(folder, "key", counted(made))
    assert (len(made), len(notes), "damaged" in notes[0]) == (2, 1, True)
    assert torch.equal(found["numbers"], tensors()["numbers"])
    assert kept_features(folder, "key", counted(made))[1] == ()
    assert len(made) == 2


def test_kept_features_that_are_quickly_made_are_not_written(tmp_path):
    kept_features(tmp_path / "features", "key", tensors)
    assert not (tmp_path / "features").exists()


def test_prune_removes_what_was_not_used_for_longest(folder):
    for name in ("a", "b"):
        kept_features(folder, name, tensors)
        os.utime(folder / name / "manifest.json", (0, 0))  # the file system's clock may stand still in between
    size = sum(path.stat().st_size for path in (folder / "a").iterdir())
    kept_features(folder, "a", tensors)  # used again, so b is the older one
    prune(folder, size + 10)
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_prune_beside_another_process_that_prunes_goes_on(folder, monkeypatch):
    for name in ("a", "b"):
        kept_features(folder, name, tensors)
    stat = Path.stat

    def pruned_meanwhile(path, **options):
        if path.name == "tensors.pt" and path.parent.name == "a":
            shutil.rmtree(path.parent, ignore_errors=True)
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", pruned_meanwhile)
        prune(folder, 10**9)
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_kept_features_that_another_process_prunes_once_read_are_used(folder, monkeypatch):
    made = []
    kept_features(folder, "key", counted(made))
    load = torch.load

    def pruned_after(file, **options):
        found = load(file, **options)
        shutil.rmtree(file.parent)
        return found

    monkeypatch.setattr(torch, "load", pruned_after)
    found, notes = kept_features(folder, "key", counted(made))
    assert (len(made), notes) == (1, ())
    assert torch.equal(found["numbers"], tensors()["numbers"])


def test_prune_removes_what_a_killed_run_left_a_day_ago_and_nothing_that_is_being_written(folder):
    for name in (".writing-old", ".writing-now"):
        (folder / name).mkdir(parents=True)
    (folder / ".writing-now" / "manifest.json").write_text("{}")
    long_ago = time.time() - features.ABANDONED_SECONDS - 60
    os.utime(folder / ".writing-old", (long_ago, long_ago))
    prune(folder, 0)
    assert [path.name for path in folder.iterdir()] == [".writing-now"]


def test_stage_of_another_seed_prepares_its_own_features(splits, tmp_path, folder):
    kept = KeptFeatures(folder=str(folder), split_sha256="0" * 64)
    for seed in (1, 2):
        spec = spec_with(training={"seed": seed}, stages={"mode": "continue"})
        run_stage(train_job(splits, tmp_path / str(seed), spec=spec, kept_features=kept))
    assert len(list(folder.iterdir())) == 2


def test_stage_with_kept_features_gives_the_same_weights_bit_for_bit(splits, tmp_path, folder):
    kept = KeptFeatures(folder=str(folder), split_sha256="0" * 64)
    plain = run_stage(train_job(splits, tmp_path / "plain"))
    cold = run_stage(train_job(splits, tmp_path / "cold", kept_features=kept))
    (entry,) = folder.iterdir()
    before = (entry / "manifest.json").stat().st_mtime_ns
    warm = run_stage(train_job(splits, tmp_path / "warm", kept_features=kept))
    assert (entry / "manifest.json").stat().st_mtime_ns > before
    assert plain.parameters_sha256 == cold.parameters_sha256 == warm.parameters_sha256
    assert plain.curve == cold.curve == warm.curve
    other = kept.model_copy(update={"split_sha256": "1" * 64})
    run_stage(train_job(splits, tmp_path / "other", kept_features=other))
    assert len(list(folder.iterdir())) == 2
    shutil.rmtree(folder)
