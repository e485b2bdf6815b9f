"""A dataset is used again only while its files are those on record, the ones that rows name among them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainworthy.assets import dataset as step
from trainworthy.assets.dataset import dataset_is_whole
from trainworthy.lifecycle.files.materialised import tree_here
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.lifecycle.storage.state import StateFolder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "var" / "datasets" / "shots"
    (made / "files" / "b").mkdir(parents=True)
    for name in ("1.png", "b/2.png"):
        (made / "files" / name).write_bytes(name.encode())
    return made


def record_of(folder) -> DatasetVersion:
    fields: dict[str, Any] = {"checks": (CheckResult(name="backfill", status="pass"),), "path": "datasets/shots"}
    return DatasetVersion.model_construct(**fields, files=(), tree=tree_here(folder))


@pytest.mark.parametrize("change", [
    lambda files: (files / "1.png").write_bytes(b"2.png"),
    lambda files: (files / "b" / "2.png").unlink(),
    lambda files: (files / "3.png").write_bytes(b"more"),
    lambda files: (files / "1.png").rename(files / "0.png"),
    lambda files: (files / "3.png").symlink_to("/etc/hostname"),
], ids=["other_bytes", "gone", "added", "renamed", "link_outside"])  # fmt: skip
def test_dataset_is_done_again_after_any_change_of_the_files_that_rows_name(folder, tmp_path, monkeypatch, change):
    record = record_of(folder)
    run = cast(Any, SimpleNamespace(workspace=SimpleNamespace(state=StateFolder(tmp_path / "var"))))
    monkeypatch.setattr(step, "kept_history", lambda _: record.checks[0])
    assert record.file_count == 2
    assert dataset_is_whole(run, record)
    change(folder / "files")
    assert not dataset_is_whole(run, record)
