"""The user's own DVC remote: two people share bytes, and plain `dvc` knows what was published."""

import os
import shutil

import pytest
from trips_project import Trips, assert_right, clone, declare_remote, dvc

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.resources import dvc_objects
from trainworthy.resources.dvc_objects import project_remote


@pytest.fixture
def shared(unpublished, tmp_path):
    """A project whose .dvc/config names a folder outside of it."""
    remote = tmp_path / "shared"
    declare_remote(unpublished, f"[core]\n    remote = team\n['remote \"team\"']\n    url = {remote}\n")
    return unpublished, remote


def test_published_version_comes_to_a_fresh_clone_from_the_users_remote(shared, tmp_path):
    trips, remote = shared
    trips.publish("v3", 3)
    assert not (trips.store.state / "dvc" / "remote").exists()
    assert len([path for path in remote.rglob("files/md5/*/*")]) == 4
    other = clone(trips, tmp_path)
    assert_right(other.fetch(), other)
    assert trips.num_builds == 1


def test_plain_dvc_pulls_lists_and_gets_a_published_version(shared, tmp_path):
    trips, _ = shared
    trips.publish("v3", 3)
    pointer = (trips.project / "data" / "trips@v3.dvc").read_text()
    assert pointer.splitlines()[0] == "outs:"
    assert len(pointer.splitlines()) == 4
    other = clone(trips, tmp_path)
    names = ["2013-01.parquet", "2013-02.parquet", "2013-03.parquet"]
    dvc(other, "pull", "data/trips@v3.dvc")
    pulled = other.project / "data" / "trips@v3"
    assert sorted(path.name for path in pulled.iterdir()) == names
    assert all((pulled / name).read_bytes() == (trips.fetch().path / name).read_bytes() for name in names)
    assert dvc(other, "list", ".", "data/trips@v3").split() == names
    dvc(other, "get", ".", "data/trips@v3", "--out", "got")
    assert sorted(path.name for path in (other.project / "got").iterdir()) == names


def test_plain_dvc_pushes_to_a_remote_that_is_named_later(shared, tmp_path):
    trips, remote = shared
    trips.publish("v3", 3)
    dvc(trips, "pull", "data/trips@v3.dvc")
    shutil.rmtree(remote)
    dvc(trips, "push", "data/trips@v3.dvc")
    assert len([path for path in remote.rglob("files/md5/*/*")]) == 4


@pytest.mark.parametrize("settings", ["", "    verify = true\n"])
def test_object_that_was_damaged_in_the_users_remote_is_told_not_used_and_stays(shared, tmp_path, capfd, settings):
    trips, remote = shared
    trips.publish("v3", 3)
    other = clone(trips, tmp_path)
    path = next(path for path in sorted(remote.rglob("files/md5/*/*")) if path.suffix != ".dir")
    path.chmod(0o644)
    path.write_bytes(b"other")
    config = other.project / ".dvc" / "config"
    config.write_text(config.read_text() + settings)
    assert_right(other.fetch(), other)
    assert trips.num_builds == 2
    assert path.read_bytes() == b"other"
    assert f"is damaged and is not used; remove it there, or restore it from a backup: {path}" in capfd.readouterr().err


@pytest.mark.parametrize(("num_wrong", "stays"), [(1, True), (2, False)])
def test_an_object_is_read_twice_before_it_counts_as_damaged(trips, tmp_path, monkeypatch, num_wrong, stays):
    path = trips.objects("cache")[0]
    wrong, read = ["other"] * num_wrong, dvc_objects._read

    def read_wrong(store, source, copy):
        return wrong.pop() if source == str(path) and wrong else read(store, source, copy)

    monkeypatch.setattr(dvc_objects, "_read", read_wrong)
    objects = dvc_objects.DvcObjects(trips.store.state / "dvc", trips.project)
    assert objects.read(trips.fetch().dvc_hash, tmp_path / "files") == []
    assert path.exists() is stays


def declare_away(trips: Trips) -> None:
    """A remote that no package here can reach."""
    declare_remote(trips, "[core]\n    remote = team\n['remote \"team\"']\n    url = gs://shop/x\n")


def test_fetch_from_a_full_cache_does_not_ask_the_remote(trips, capfd):
    declare_away(trips)
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 1
    assert "remote" not in capfd.readouterr().err


def test_fetch_rebuilds_with_a_warning_where_the_remote_cannot_be_reached(trips, capfd):
    declare_away(trips)
    trips.remove("datasets", "dvc/cache")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 2
    assert "warning: DVC's remote did not take part" in capfd.readouterr().err


def test_fetch_after_a_rebuild_warns_where_the_remote_takes_no_files(shared, tmp_path, capfd):
    trips, remote = shared
    trips.publish("v3", 3)
    other = clone(trips, tmp_path)
    shutil.rmtree(remote)
    remote.write_text("no folder")
    assert_right(other.fetch(), other)
    assert trips.num_builds == 2
    assert "warning: DVC's remote did not take part" in capfd.readouterr().err
    other.remove("datasets")
    assert_right(other.fetch(), other)
    assert trips.num_builds == 2


def test_publish_is_refused_where_a_damaged_object_is_in_the_way(shared, tmp_path):
    trips, remote = shared
    trips.publish("v1", 1)
    path = next(path for path in sorted(remote.rglob("files/md5/*/*")) if path.suffix != ".dir")
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(DatasetError, match="DVC's remote has damaged objects in the way"):
        trips.publish("v3", 3)
    assert path.read_bytes() == b"other"


def test_words_of_the_remotes_storage_hold_no_secrets():
    remote = dvc_objects.Remote("team", {"team": {"url": "https://u:secret@h/x", "password": "hidden", "port": 8}})
    error = OSError("GET https://u:secret@h/x?sig=abc failed, login hidden")
    with pytest.raises(DatasetError) as caught, remote.translating_errors():
        raise error
    assert caught.value.problem == "DVC's remote did not take part: GET https://h/x failed, login ***"
    assert caught.value.value == "https://h/x"
    assert caught.value.__suppress_context__


def test_local_error_while_the_remote_is_read_passes_through(shared, tmp_path):
    trips, _ = shared
    version = trips.publish("v3", 3)
    other = clone(trips, tmp_path)
    (tmp_path / "full").write_text("no folder")
    with pytest.raises(OSError, match="full"):
        dvc_objects.DvcObjects(other.store.state / "dvc", other.project).read(version.dvc_hash, tmp_path / "full")


def test_remote_below_another_remote_is_found(unpublished, tmp_path):
    team = "[core]\n    remote = team\n['remote \"team\"']\n    url = remote://server/dvc\n"
    declare_remote(unpublished, f"{team}['remote \"server\"']\n    url = {tmp_path / 'server'}\n")
    unpublished.publish("v3", 3)
    assert len([*(tmp_path / "server" / "dvc").rglob("files/md5/*/*")]) == 4


def test_without_a_remote_the_state_folder_keeps_the_bytes(unpublished):
    assert project_remote(unpublished.project) is None
    declare_remote(unpublished, "[core]\n    remote = local\n['remote \"local\"']\n    url = ../var/dvc/remote\n")
    assert project_remote(unpublished.project) is None
    declare_remote(unpublished, "['remote \"team\"']\n    url = ../shared\n")
    assert project_remote(unpublished.project) is None
    declare_remote(unpublished, "[core]\n    remote = team\n['remote \"team\"']\n    url = ../shared\n")
    found = project_remote(unpublished.project)
    assert found is not None
    assert os.path.normpath(found.url) == str(unpublished.project / "shared")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("[core]\n    remote = team\n", "DVC's default remote is not declared"),
        ("[core\n", "DVC's settings cannot be read"),
        (
            "[core]\n    remote = team\n['remote \"team\"']\n    url = gs://user:secret@shop/x\n",
            "remote did not take part",
        ),
    ],
)
def test_remote_that_cannot_be_used_is_one_error_and_no_entry(unpublished, config, problem):
    declare_remote(unpublished, config)
    with pytest.raises(DatasetError, match=problem) as caught:
        unpublished.publish("v3", 3)
    assert caught.value.fix
    assert "secret" not in str(caught.value)
    assert not (unpublished.project / "data" / "versions.yaml").exists()
    assert not (unpublished.project / "data" / "trips@v3.dvc").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_remote_that_takes_no_files_is_one_error(shared):
    trips, remote = shared
    remote.mkdir(mode=0o555)
    with pytest.raises(DatasetError, match="remote did not take part"):
        trips.publish("v3", 3)


def test_remote_that_is_a_file_is_one_error(shared):
    trips, remote = shared
    remote.write_text("no folder")
    with pytest.raises(DatasetError, match="remote did not take part") as caught:
        trips.publish("v3", 3)
    assert caught.value.value == str(remote)
