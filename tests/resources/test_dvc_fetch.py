"""Fetching a published version through real DVC: built, kept, read back, healed, refused."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from trips_project import assert_right, flip_byte

from trainworthy.lifecycle.errors import DatasetError, SettingsError
from trainworthy.lifecycle.files.versions import read_versions, versions_path
from trainworthy.lifecycle.identity import sha256_file


def test_fetch_on_a_fresh_machine_builds_once_and_leaves_the_project_clean(trips, capfd):
    trips.remove("")
    first = trips.fetch()
    assert_right(first, trips)
    assert trips.fetch() == first
    assert trips.num_builds == 2
    assert "building the files of trips@v3, which are not stored here yet" in capfd.readouterr().err
    assert trips.git("status", "--porcelain") == ""
    assert not list((trips.store.state / "dvc" / "work").iterdir())


@pytest.mark.parametrize("lost", ["dvc/remote", "dvc/cache"])
def test_fetch_without_the_folder_reads_dvc_objects_and_refills_both_stores(trips, lost):
    kept = trips.objects("cache", "remote")
    trips.remove("datasets", lost)
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 1
    assert trips.objects("cache", "remote") == kept


def test_dvc_hash_is_the_one_that_dvc_gives_itself(trips):
    from dvc.repo import Repo

    other = trips.project.parent / "other"
    fetched = trips.fetch()
    shutil.copytree(fetched.path, other)
    # DVC's logger keeps the stream of the test that made it, which pytest has closed since.
    logging.disable()
    try:
        with Repo.init(str(other.parent), no_scm=True) as repo:
            (stage,) = repo.add(str(other))
            assert stage.outs[0].hash_info.value == fetched.dvc_hash
    finally:
        logging.disable(logging.NOTSET)


def test_fetch_after_a_flipped_byte_in_the_folder_gives_the_right_bytes(trips, capfd):
    fetched = trips.fetch()
    before = (fetched.path / "2013-02.parquet").read_bytes()
    flip_byte(fetched.path / "2013-02.parquet")
    assert_right(trips.fetch(), trips)
    assert (fetched.path / "2013-02.parquet").read_bytes() == before
    assert trips.num_builds == 1
    assert "2013-02.parquet" in capfd.readouterr().err


@pytest.mark.parametrize("damage", ["truncated", "removed", "added", "manifest", "rows"])
def test_fetch_after_other_damage_to_the_folder_gives_the_right_bytes(trips, damage):
    fetched = trips.fetch()
    file, manifest = fetched.path / "2013-02.parquet", fetched.path.parent / "manifest.json"
    file.chmod(0o644)
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "removed":
        file.unlink()
    elif damage == "added":
        (fetched.path / "2013-04.parquet").write_bytes(file.read_bytes())
    elif damage == "manifest":
        manifest.write_text("{")
    else:
        manifest.write_text(manifest.read_text().replace('"rows": 50', '"rows": 49'))
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 1


def test_fetch_with_a_changed_object_in_the_cache_takes_the_remote_and_refills_the_cache(trips):
    for path in trips.objects("cache"):
        flip_byte(path)
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 1
    trips.remove("datasets", "dvc/remote")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 1


@pytest.mark.parametrize("damage", [flip_byte, Path.unlink])
def test_fetch_with_an_object_damaged_everywhere_rebuilds(trips, damage):
    for store in ("cache", "remote"):
        damage(trips.objects(store)[0])
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 2
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 2


def truncate(path):
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_fetch_of_a_lost_object_names_version_and_file_and_builds_it_if_it_can(trips, damage, capfd):
    (lost,) = [path for path in trips.objects("cache") if path.read_bytes() == february(trips)]
    damage(lost)
    damage(next(path for path in trips.objects("remote") if path.parts[-2:] == lost.parts[-2:]))
    trips.remove("datasets")
    trips.write_builder("out.mkdir", "raise ValueError('no such source')\nout.mkdir")
    with pytest.raises(DatasetError, match=r"trips@v3 is not to be had: DVC's cache and remote lack 2013-02\.parquet"):
        trips.fetch()
    assert not list(trips.store.state.rglob("datasets/**/*.parquet"))
    trips.write_builder()
    assert_right(trips.fetch(), trips)
    assert "building trips@v3: DVC's cache and remote do not have 2013-02.parquet" in capfd.readouterr().err


def february(trips):
    return (trips.fetch().path / "2013-02.parquet").read_bytes()


def test_fetch_of_an_old_version_after_newer_ones_gives_exactly_its_bytes(unpublished):
    unpublished.publish("v1", 1)
    first = {file.path: file.sha256 for file in unpublished.fetch("v1").files}
    unpublished.publish("v2", 2)
    unpublished.fetch("v2")
    unpublished.remove("datasets")
    builds = unpublished.num_builds
    again = unpublished.fetch("v1")
    assert {file.path: sha256_file(unpublished.store.state / file.path) for file in again.files} == first
    assert unpublished.num_builds == builds


def test_fetch_with_a_changed_list_of_files_rebuilds(trips):
    for path in (trips.store.state / "dvc").rglob("*.dir"):
        flip_byte(path)
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 2


def test_fetch_of_a_builder_with_other_values_is_refused_with_both_hashes(trips):
    published = read_versions(trips.project)["trips"]["v3"]
    trips.write_builder("row * month", "row * month + (month == 2)")
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)  # DVC still holds the published bytes
    for path in trips.objects("cache", "remote"):
        path.unlink()
    trips.remove("datasets")
    with pytest.raises(DatasetError) as caught:
        trips.fetch()
    message = str(caught.value)
    assert "trips@v3" in message
    assert published.content_hash in message
    assert "files that differ: 2013-02.parquet" in message
    assert not trips.store.datasets.exists() or not list(trips.store.datasets.rglob("*.parquet"))


def test_fetch_of_objects_that_are_not_the_published_content_is_refused(trips):
    path = versions_path(trips.project)
    published = read_versions(trips.project)["trips"]["v3"].content_hash
    path.write_text(path.read_text().replace(published, "ab" * 32))
    with pytest.raises(DatasetError, match=f"expected {'ab' * 32}.*found {published}"):
        trips.fetch()


def test_fetch_of_a_wrong_number_of_rows_is_refused(trips):
    path = versions_path(trips.project)
    path.write_text(path.read_text().replace("rows: 150", "rows: 151"))
    with pytest.raises(DatasetError, match=r"151 rows.*150 rows"):
        trips.fetch()


def test_fetch_of_equal_rows_in_other_bytes_is_accepted_said_and_kept(trips, capfd):
    published = read_versions(trips.project)["trips"]["v3"]
    trips.write_builder(compression="gzip")
    trips.remove("")
    fetched = trips.fetch()
    assert_right(fetched, trips)
    assert fetched.dvc_hash != published.dvc_hash
    assert published.dvc_hash in capfd.readouterr().err
    trips.remove("datasets")
    assert trips.fetch() == fetched
    assert trips.num_builds == 2


def test_fetch_of_an_unknown_version_lists_the_published_ones(trips):
    with pytest.raises(DatasetError, match=r"published: v3") as caught:
        trips.fetch("v33")
    assert "did you mean 'v3'?" in str(caught.value)


def test_fetch_into_a_folder_outside_the_state_is_refused(trips, tmp_path):
    with pytest.raises(SettingsError, match="below the state folder"):
        trips.store.fetch(trips.project, "trips", "v3", tmp_path / "elsewhere")


def test_fetch_of_a_failing_builder_shows_its_last_lines(trips):
    trips.write_builder("out.mkdir", "raise ValueError('no such source')\nout.mkdir")
    trips.remove("")
    with pytest.raises(DatasetError, match="no such source"):
        trips.fetch()


def test_fetch_of_two_processes_at_once_builds_once_and_both_are_right(trips):
    trips.remove("")
    code = (
        "import sys, pathlib; from trainworthy.resources.dvc import DatasetStore; project = pathlib.Path(sys.argv[1]); "
        "store = DatasetStore(project / 'var'); "
        "print(store.fetch(project, 'trips', 'v3', store.datasets).path)"
    )
    command = [sys.executable, "-c", code, str(trips.project)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1] == str(trips.fetch().path)
    assert_right(trips.fetch(), trips)
    assert trips.num_builds == 2


def test_fetch_after_a_killed_build_sweeps_its_workspace(trips):
    left = trips.store.state / "dvc" / "work" / "left"
    left.mkdir(parents=True)
    trips.remove("datasets")
    assert_right(trips.fetch(), trips)
    assert not left.exists()


def test_plain_dvc_repro_in_the_project_gives_the_published_bytes(trips):
    """The stage in the project's own tree and the isolated build are the same thing."""
    (trips.project / ".dvc").mkdir()
    (trips.project / ".dvc" / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=trips.project, check=True, env=_path())
    lock = yaml.safe_load((trips.project / "dvc.lock").read_text())
    assert lock["stages"]["trips"]["outs"][0]["md5"] == trips.fetch().dvc_hash
    assert len(pd.read_parquet(trips.project / "data" / "trips")) == 150


def _path() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DVC_NO_ANALYTICS": "1"}
