"""Datasets whose rows name files: what counts for their content, what is refused, and rows as paths."""

import pandas as pd
import pytest
from file_datasets import picture_dataset

from trainworthy.lifecycle.data.difference import VersionFiles, compare
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import FileContent, combined, content_hash, parquet_files
from trainworthy.lifecycle.files.materialised import files_folder, install, intact
from trainworthy.lifecycle.files.values import is_file_column
from trainworthy.lifecycle.files.versions import changed_files
from trainworthy.lifecycle.protocol.jobs import Rows


@pytest.fixture
def folder(tmp_path):
    picture_dataset(tmp_path / "built", rows=4)
    return tmp_path / "built"


def test_content_hash_counts_names_and_bytes_of_files_and_rows_once(folder):
    before = content_hash(folder)
    assert (before.rows, [file.name for file in before.files][:2]) == (4, ["files/0000.png", "files/0001.png"])
    assert list(parquet_files(folder)) == ["rows.parquet"]
    (folder / "files" / "0001.png").rename(folder / "files" / "1.png")
    renamed = content_hash(folder)
    (folder / "files" / "1.png").write_bytes(b"other")
    assert len({before.sha256, renamed.sha256, content_hash(folder).sha256}) == 3


def test_content_hash_without_files_is_that_of_the_parquet_files_alone(folder):
    whole = content_hash(folder)
    (folder / "files").rename(folder.with_name("aside"))
    assert content_hash(folder) == combined(file for file in whole.files if file.rows)


def test_a_folder_of_files_that_is_a_link_is_refused(folder, tmp_path):
    (folder / "files").rename(tmp_path / "outside")
    (folder / "files").symlink_to(tmp_path / "outside")
    with pytest.raises(DatasetError, match="a link leads there") as caught:
        content_hash(folder)
    assert caught.value.value == "files"


def test_a_foreign_file_beside_files_is_still_refused(folder):
    (folder / "notes.txt").write_text("x")
    with pytest.raises(DatasetError, match="not Parquet"):
        content_hash(folder)


@pytest.mark.parametrize("to_folder", [False, True])
def test_a_link_that_leaves_the_folder_is_refused_by_name(folder, tmp_path, to_folder):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.png").write_bytes(b"x")
    (folder / "files" / "a.png").symlink_to(outside if to_folder else outside / "a.png")
    with pytest.raises(DatasetError, match="a file outside the dataset's folder") as caught:
        content_hash(folder)
    assert caught.value.value == "files/a.png"


def test_materialised_folder_notices_a_changed_and_an_added_file(folder, tmp_path):
    content, target = content_hash(folder), tmp_path / "datasets" / "hash"
    install(folder, target, content, "0.dir")
    assert intact(target, content.sha256) is not None
    path = files_folder(target) / "files" / "0002.png"
    path.chmod(0o644)
    path.write_bytes(b"x")
    (files_folder(target) / "files" / "new.png").write_bytes(b"x")
    with pytest.raises(DatasetError, match="files differ") as caught:
        intact(target, content.sha256)
    assert caught.value.value == ["files/0002.png", "files/new.png"]


def content(**files):
    return combined(FileContent(name=name, rows=0, sha256=sha256) for name, sha256 in files.items())


def test_a_next_version_keeps_files_and_an_older_state_lacks_those_of_later_rows():
    old = content(**{"2013-1.parquet": "a", "2013-2.parquet": "b", "files/x.png": "c", "files/y.png": "d"})
    assert changed_files(content(**{"2013-1.parquet": "a", "files/y.png": "d"}), old) == ([], [])
    same_rows = content(**{"2013-1.parquet": "a", "2013-2.parquet": "b", "files/x.png": "e"})
    assert changed_files(same_rows, old) == (["files/x.png"], ["files/y.png"])


def test_a_difference_of_versions_tells_of_files(folder, tmp_path):
    picture_dataset(tmp_path / "next", rows=4)
    (tmp_path / "next" / "files" / "0001.png").write_bytes(b"other")
    (tmp_path / "next" / "files" / "new.png").write_bytes(b"new")
    old, new = (VersionFiles(name, tmp_path / name, content_hash(tmp_path / name)) for name in ("built", "next"))
    found = compare(old, new, ["row_id"], None)
    assert found.schema == ("below files/: 1 added, 1 other bytes",)
    assert (len(found.files.equal), len(found.added)) == (1, 0)


def test_read_rows_gives_absolute_paths_and_keeps_a_null(folder):
    rows = pd.read_parquet(folder / "rows.parquet")
    rows.loc[1, "picture"] = None
    rows.to_parquet(folder / "rows.parquet", index=False)
    asked = Rows(features=("picture",), label="label", group="day", files=("picture",), files_root=str(folder))
    found = read_rows(str(folder / "rows.parquet"), asked)["picture"]
    assert found[0] == folder / "files" / "0000.png"
    assert found[1] is None
    assert is_file_column(found)
    assert not is_file_column(pd.Series(["a"], dtype=object))


@pytest.mark.parametrize("value", ["/etc/passwd", "files/../../x", "files\\x", "other/x"])
def test_read_rows_refuses_a_path_outside(folder, value):
    rows = pd.read_parquet(folder / "rows.parquet").assign(picture=value)
    rows.to_parquet(folder / "rows.parquet", index=False)
    asked = Rows(features=("picture",), label="label", group="day", files=("picture",), files_root=str(folder))
    with pytest.raises(DatasetError, match="a file outside the dataset's folder"):
        read_rows(str(folder / "rows.parquet"), asked)
