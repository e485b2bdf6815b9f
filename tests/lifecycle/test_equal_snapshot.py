"""A snapshot of the same rows by the same rules is made once, whichever use case asks; any other is made anew."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import toy_jobs
from test_record_store import common, dataset

from trainworthy.assets.snapshot import snapshot_rows
from trainworthy.lifecycle.data.snapshot import snapshot_is_whole
from trainworthy.lifecycle.lineage import identity_of
from trainworthy.lifecycle.protocol.checks import stopping
from trainworthy.lifecycle.protocol.records import DatasetVersion, Record, Snapshot, Step
from trainworthy.lifecycle.storage.metrics import add_metrics, metrics_of, metrics_path
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case

VERSION = dataset().model_copy(update={"rows": 9_600})


@pytest.fixture
def state(tmp_path, splits) -> StateFolder:
    """A state folder with the toy's rows as a dataset."""
    state = StateFolder(tmp_path / "var")
    (source := state.absolute(VERSION.path)).mkdir(parents=True)
    rows = pd.concat([pd.read_parquet(path) for path in sorted(splits.glob("*.parquet"))])
    rows.drop(columns="positive").to_parquet(source / "rows.parquet", index=False)
    return state


@pytest.fixture
def toy(tmp_path) -> UseCase:
    return load_use_case(toy_jobs.changed_use_case(tmp_path / "use_cases" / "toy"))


def renamed(toy: UseCase, folder: Path, model: tuple[str, str]) -> UseCase:
    """A use case `other` with the same declarations and another model.py."""
    path = toy_jobs.changed_use_case(folder / "use_cases" / "other", model)
    (path / "use_case.yaml").write_text((path / "use_case.yaml").read_text().replace("name: toy\n", "name: other\n"))
    return load_use_case(path)


def made(state: StateFolder, use_case: UseCase, version: DatasetVersion = VERSION) -> Snapshot:
    """The record that the step writes."""
    records = StateRecords(FolderState(state.root))
    upstream: dict[Step, Record] = {"dataset": version}
    workspace = SimpleNamespace(state=state, records=records, share_metrics=lambda name: None)
    run = SimpleNamespace(
        workspace=workspace, use_case=use_case, record=lambda step, kind: version,
        step="snapshot", code_sha256="c", upstream=upstream,
        identity=identity_of(use_case, "snapshot", "c", upstream, {}),
    )  # fmt: skip
    outcome = snapshot_rows(run)  # pyright: ignore[reportArgumentType]
    assert stopping(outcome.checks) == ()
    assert outcome.body is not None
    record = Snapshot(
        **common("snapshot", "s", {}, outcome.checks) | {"use_case": use_case.name}, **dict(outcome.body)
    )  # fmt: skip
    records.put(record, "r1")
    if outcome.after is not None:
        outcome.after(record)
    return record


def refuse(*given):
    raise AssertionError("the rows were judged again")


MODEL = ("Dropout(0.1)", "Dropout(0.2)")


def test_equal_snapshot_of_another_use_case_is_taken_over_under_the_own_name(state, toy, tmp_path, monkeypatch):
    first = made(state, toy)
    monkeypatch.setattr("trainworthy.lifecycle.snapshot.make_snapshot", refuse)
    second = made(state, renamed(toy, tmp_path, MODEL))
    assert second.checks[0].evidence.endswith(
        "Taken over from the snapshot of use case toy: the same rows, rules and split"
    )
    assert second.checks[1:] == first.checks[1:]
    kept = {"use_case", "checks", "splits", "contract"}
    assert second.model_dump(exclude=kept) == first.model_dump(exclude=kept)
    for name, split in second.splits.items():
        assert split.file.path == f"snapshots/other/{first.content_hash}/{name}.parquet"
        assert split.model_copy(update={"file": first.splits[name].file}) == first.splits[name]
    assert first.contract is not None
    path = f"contracts/other/{first.contract.sha256}.json"
    assert second.contract == first.contract.model_copy(update={"path": path})
    # What the days of later versions are judged by.
    assert metrics_of(state, "other") == metrics_of(state, "toy") != ()
    shutil.rmtree(state.folder("snapshots", "toy"))
    assert snapshot_is_whole(state, second.splits)
    assert [path.name for path in state.folder("snapshots", "other").iterdir()] == [first.content_hash]


def test_own_snapshot_is_taken_over_after_a_change_of_the_model(state, toy, monkeypatch):
    first = made(state, toy)
    monkeypatch.setattr("trainworthy.lifecycle.snapshot.make_snapshot", refuse)
    source = (toy.folder / "model.py").read_text()
    (toy.folder / "model.py").write_text(source.replace(*MODEL))
    second = made(state, toy)
    assert second.splits == first.splits
    assert second.checks[0].evidence.endswith(
        "Taken over from an earlier snapshot of toy: the same rows, rules and split"
    )
    # What was taken over is not taken over from: the words would grow.
    assert made(state, toy).checks == second.checks


def changed(name: str, old: str, new: str):
    def edit(state: StateFolder, toy: UseCase) -> DatasetVersion:
        path = toy.folder / name
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))
        return VERSION

    return edit


def other_rows(state: StateFolder, toy: UseCase) -> DatasetVersion:
    return VERSION.model_copy(update={"content_hash": "z"})


def other_revision(state: StateFolder, toy: UseCase) -> DatasetVersion:
    return VERSION.model_copy(update={"revision": "v2"})


def seen_before(state: StateFolder, toy: UseCase) -> DatasetVersion:
    (of_toy,) = metrics_of(state, "toy")
    metrics_path(state, "toy").unlink()
    add_metrics(state, "toy", of_toy.model_copy(update={"version": "v0", "content_hash": "before"}))
    return VERSION


def damaged(state: StateFolder, toy: UseCase) -> DatasetVersion:
    (path,) = state.folder("snapshots", "toy").glob("*/training.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    return VERSION


def record_gone(state: StateFolder, toy: UseCase) -> DatasetVersion:
    shutil.rmtree(state.folder("records"))
    return VERSION


@pytest.mark.parametrize(
    "change",
    [
        changed("contract.yaml", "maximum: 10}", "maximum: 11}"),
        changed("contract.yaml", "greaterThan: 0", "greaterThan: 0.1"),
        changed("use_case.yaml", "embargo: 1d", "embargo: 2d"),
        changed("use_case.yaml", "seed: 7", "seed: 7\n  class_weights: balanced"),
        changed("use_case.yaml", "stages: {", "validation: {engine: great_expectations}\nstages: {"),
        other_rows, other_revision, seen_before, damaged, record_gone,
    ],
    ids=["rule", "label", "split", "class_weights", "engine", "rows", "revision", "earlier", "damaged", "record"],
)  # fmt: skip
def test_snapshot_that_differs_in_anything_is_made_anew(state, toy, monkeypatch, change):
    made(state, toy)
    version = change(state, toy)
    monkeypatch.setattr("trainworthy.lifecycle.snapshot.make_snapshot", refuse)
    with pytest.raises(AssertionError, match="judged again"):
        made(state, load_use_case(toy.folder), version)
