"""Files that records name: kept by their hash, and fetched on a machine that lacks them, verified."""

import json
from pathlib import Path

import pytest
from test_state_store import opened, place, server  # noqa: F401

from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.records import DatasetBody, StoredFile
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.shared.files import fetch_files, keep_files, stored_files
from trainworthy.lifecycle.storage.shared.store import StateStore
from trainworthy.lifecycle.storage.state import StateFolder


class Part(Frozen):
    file: StoredFile


class Body(Frozen):
    """A body with a file in each place where records have one, and a folder."""

    own: StoredFile
    none: StoredFile | None = None
    parts: dict[str, Part]
    several: tuple[StoredFile, ...]
    artifact: str | None
    artifact_sha256: str | None


def stored(state: StateFolder, name: str, content: bytes) -> StoredFile:
    path = state.folder(*name.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return StoredFile(path=name, sha256=sha256_file(path), bytes=len(content))


@pytest.fixture
def first(tmp_path) -> StateFolder:
    return StateFolder(tmp_path / "first")


@pytest.fixture
def second(tmp_path) -> StateFolder:
    return StateFolder(tmp_path / "second")


@pytest.fixture
def body(first) -> Body:
    parts = {"a": Part(file=stored(first, "snapshots/toy/a.parquet", b"a" * 10))}
    weights = stored(first, "training/artifact/weights.pt2", b"weights")
    stored(first, "training/artifact/code/model.py", b"code")
    manifest = stored(first, "training/artifact/manifest.json", json.dumps({"weights": weights.sha256}).encode())
    return Body(
        own=stored(first, "contracts/a.json", b"{}"), parts=parts, several=(stored(first, "answers/b", b"b"),),
        artifact="training/artifact", artifact_sha256=manifest.sha256,
    )  # fmt: skip


def contents(state: StateFolder) -> dict[str, bytes]:
    return {state.relative(path): path.read_bytes() for path in state.root.rglob("*") if path.is_file()}


def test_what_a_record_names_is_fetched_by_a_machine_that_has_nothing(place, first, second, body):  # noqa: F811
    keep_files(opened(place), first, body)
    assert len(contents(first)) == 6
    fetch_files(opened(place), second, body)
    assert contents(second) == contents(first)
    assert [path for path in second.root.rglob(".fetching-*")] == []


def test_what_lies_there_is_neither_sent_nor_fetched_again(place, first, second, body, monkeypatch):  # noqa: F811
    store = opened(place)
    keep_files(store, first, body)
    fetch_files(store, second, body)
    (second.root / "contracts/a.json").write_bytes(b"other: whoever needs it finds that out")

    def again(*_: object) -> None:
        raise AssertionError("it was asked for again")

    for name in ("send", "receive"):
        monkeypatch.setattr(type(store), name, again)
    keep_files(store, first, body)
    fetch_files(store, second, body)
    assert (second.root / "contracts/a.json").read_bytes().startswith(b"other")


def test_what_the_store_does_not_have_is_left_to_whoever_needs_it(place, second, body):  # noqa: F811
    fetch_files(opened(place), second, body)
    assert contents(second) == {}


def other_bytes(store: StateStore, body: Body, folder: Path) -> None:
    (folder / "other").write_bytes(b"other")
    store.send(f"files/{body.own.sha256}", folder / "other")


def other_bytes_of_a_folder(store: StateStore, body: Body, folder: Path) -> None:
    index = store.get(f"folders/{body.artifact_sha256}.json")
    assert index is not None
    (folder / "other").write_bytes(b"other")
    store.send(f"files/{json.loads(index.content)['files']['weights.pt2']}", folder / "other")


@pytest.mark.parametrize("plant", [other_bytes, other_bytes_of_a_folder])
def test_other_bytes_than_the_name_says_are_refused_and_nothing_stays(
    place, first, second, body, tmp_path, plant,  # noqa: F811
):  # fmt: skip
    store = opened(place)
    keep_files(store, first, body)
    plant(store, body, tmp_path)
    with pytest.raises(StateError, match="other bytes than its name says"):
        fetch_files(store, second, body)
    assert b"other" not in contents(second).values()
    assert not (second.root / "training/artifact").exists()


@pytest.mark.parametrize("name", ["../../victim", "/etc/victim", "a/../../victim", "a\\b"])
def test_names_of_a_folder_in_the_store_lead_nowhere_else(place, second, body, tmp_path, name):  # noqa: F811
    store, victim = opened(place), tmp_path / "victim"
    victim.write_bytes(b"planted")
    store.send(f"files/{sha256_file(victim)}", victim)
    index = json.dumps({"files": {name: sha256_file(victim)}}).encode()
    store.put_new(f"folders/{body.artifact_sha256}.json", index)
    before = contents(second)
    with pytest.raises(StateError, match="was not written by Trainworthy"):
        fetch_files(store, second, body)
    assert contents(second) == before


def test_file_that_is_no_longer_what_was_measured_is_never_kept(place, first, body):  # noqa: F811
    (first.root / "snapshots/toy/a.parquet").write_bytes(b"changed")
    store = opened(place)
    with pytest.raises(StateError, match="no longer what was measured"):
        keep_files(store, first, body)
    assert not store.has(f"files/{body.parts['a'].file.sha256}")


def test_files_of_a_dataset_are_left_to_dvc():
    file = StoredFile(path="datasets/a/rows.csv", sha256="0" * 64, bytes=1)
    dataset = DatasetBody(
        name="toy", revision="v1", dvc_hash="x", content_hash="y", rows=1, path="datasets/a", files=(file,)
    )
    assert list(stored_files(dataset)) == []
