"""Materialised dataset folders: in place all at once, and never used after a change."""

import pandas as pd
import pytest

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.materialised import files_folder, install, intact


@pytest.fixture
def installed(tmp_path):
    """Target folder and content of two installed files."""
    return install_version(tmp_path, first=1.0)


def install_version(tmp_path, first):
    folder, target = tmp_path / "built", tmp_path / "datasets" / "trips" / "hash"
    folder.mkdir()
    for name, value in (("a.parquet", first), ("b.parquet", 2.0)):
        pd.DataFrame({"delay": [value]}).to_parquet(folder / name)
    content = content_hash(folder)
    install(folder, target, content, "0.dir")
    return target, content


def test_install_gives_an_intact_folder_and_leaves_nothing_behind(installed, tmp_path):
    target, content = installed
    manifest = intact(target, content.sha256)
    assert manifest is not None
    assert (manifest.content, manifest.dvc_hash) == (content, "0.dir")
    assert content_hash(files_folder(target)) == content
    assert [path.name for path in tmp_path.iterdir()] == ["datasets"]


def test_install_over_another_version_replaces_it_whole(installed, tmp_path):
    target, content = install_version(tmp_path, first=7.0)
    assert intact(target, content.sha256) is not None
    assert sorted(path.name for path in target.iterdir()) == ["files", "manifest.json"]


def test_intact_of_a_missing_folder_is_none(tmp_path):
    assert intact(tmp_path / "missing", "0") is None


def test_intact_of_other_content_is_refused(installed):
    with pytest.raises(DatasetError, match="other content"):
        intact(installed[0], "0" * 64)


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "truncated"])
def test_intact_after_damage_names_the_file(installed, damage):
    target, content = installed
    file = files_folder(target) / "a.parquet"
    file.chmod(0o644)
    data = file.read_bytes()
    if damage == "changed":
        file.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    elif damage == "removed":
        file.unlink()
    elif damage == "added":
        file = file.with_name("c.parquet")
        file.write_bytes(data)
    else:
        file.write_bytes(data[:-1])
    with pytest.raises(DatasetError) as caught:
        intact(target, content.sha256)
    assert caught.value.value == [file.name]


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_intact_without_a_readable_manifest_is_refused(installed, text):
    target, content = installed
    manifest = target / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    with pytest.raises(DatasetError, match="manifest"):
        intact(target, content.sha256)
