"""Published versions through real DVC: built, kept, read back, healed, refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lifecycle.data.content import content_hash
from lifecycle.data.versions import read_versions, versions_path
from lifecycle.errors import DatasetError, SettingsError
from lifecycle.identity import sha256_file
from resources.dvc import DatasetStore, FetchedDataset

DVC_YAML = {
    "stages": {
        "trips": {
            "vars": ["data/trips.yaml"],
            "cmd": "python build/dataset.py --out data/trips --files ${files} --source ${source}",
            "deps": ["build/dataset.py"],
            "params": [{"data/trips.yaml": None}],
            "outs": ["data/trips"],
        }
    }
}
# Every build adds a line to a file, so that a test can prove that none ran.
DATASET_PY = """
import argparse, os, pathlib
import pandas as pd

parser = argparse.ArgumentParser()
for name in ("--out", "--files", "--source"):
    parser.add_argument(name)
arguments = parser.parse_args()
with open(os.environ["TRIPS_BUILDS"], "a") as file:
    file.write("built\\n")
out = pathlib.Path(arguments.out)
out.mkdir(parents=True)
for month in range(1, int(arguments.files) + 1):
    rows = pd.DataFrame({"month": [month] * 50, "delay": [float(row * month) for row in range(50)]})
    rows.to_parquet(out / f"2013-{month:02}.parquet", compression=COMPRESSION)
"""


class Trips:
    """A project under git with a dataset of three small files, and its store in var/."""

    def __init__(self, folder: Path) -> None:
        self.project, self.builds = folder / "project", folder / "builds.txt"
        self.store = DatasetStore(self.project / "var")

    def create(self) -> None:
        for name in ("build", "data"):
            (self.project / name).mkdir(parents=True)
        (self.project / "dvc.yaml").write_text(yaml.safe_dump(DVC_YAML))
        (self.project / "data" / "trips.yaml").write_text("files: 3\nsource: 1.0.0\n")
        (self.project / ".gitignore").write_text("/var/\n")
        self.write_builder()
        self.git("init", "-q")
        self.commit()

    def write_builder(self, old: str = "", new: str = "", compression: str = "zstd") -> None:
        text = f"COMPRESSION = {compression!r}\n{DATASET_PY.replace(old, new)}"
        (self.project / "build" / "dataset.py").write_text(text)

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=self.project, check=True, capture_output=True, text=True
        ).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "state")

    def publish(self, revision: str, files: int):
        return self.store.publish(self.project, "trips", revision, {"files": files, "source": "1.0.0"})

    def fetch(self, revision: str = "v3") -> FetchedDataset:
        return self.store.fetch(self.project, "trips", revision, self.store.datasets)

    def remove(self, *names: str) -> None:
        for name in names:
            shutil.rmtree(self.store.state / name)

    def objects(self, *stores: str) -> list[Path]:
        """Files of the objects (not lists of files) in DVC's cache or remote."""
        found = [path for store in stores for path in (self.store.state / "dvc" / store).rglob("files/md5/*/*")]
        return sorted(path for path in found if path.suffix != ".dir")

    @property
    def num_builds(self) -> int:
        return len(self.builds.read_text().splitlines()) if self.builds.exists() else 0


@pytest.fixture
def unpublished(tmp_path, monkeypatch):
    trips = Trips(tmp_path)
    monkeypatch.setenv("TRIPS_BUILDS", str(trips.builds))
    trips.create()
    return trips


@pytest.fixture(scope="module")
def published_template(tmp_path_factory):
    """A project with v3 published; a build takes two seconds, a copy of one almost nothing."""
    trips = Trips(tmp_path_factory.mktemp("template"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIPS_BUILDS", str(trips.builds))
        trips.create()
        trips.publish("v3", 3)
    trips.commit()
    return trips.project.parent


@pytest.fixture
def trips(tmp_path, monkeypatch, published_template):
    shutil.copytree(published_template, tmp_path, dirs_exist_ok=True)
    trips = Trips(tmp_path)
    monkeypatch.setenv("TRIPS_BUILDS", str(trips.builds))
    return trips


def flip_byte(path: Path) -> None:
    """Change one byte in the middle, keeping size, mode and modification time as bit rot does."""
    mode, times = path.stat().st_mode, (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    path.chmod(mode)
    os.utime(path, ns=times)


def assert_right(fetched: FetchedDataset, trips: Trips, revision: str = "v3") -> None:
    version = read_versions(trips.project)["trips"][revision]
    found = content_hash(fetched.path)
    assert (found.sha256, found.rows) == (version.content_hash, version.rows)
    assert (fetched.content_hash, fetched.rows) == (version.content_hash, version.rows)
    for file in fetched.files:
        assert sha256_file(trips.store.state / file.path) == file.sha256
    assert len(fetched.files) == len(found.files)


def test_publish_writes_the_entry_and_fetch_reads_it_without_a_build(trips):
    entry = yaml.safe_load(versions_path(trips.project).read_text())["trips"]["v3"]
    assert (entry["rows"], entry["parameters"]) == (150, {"files": 3, "source": "1.0.0"})
    fetched = trips.fetch()
    assert_right(fetched, trips)
    assert fetched.dvc_hash == entry["dvc_hash"]
    assert trips.num_builds == 1


def test_fetch_on_a_fresh_machine_builds_once_and_leaves_the_project_clean(trips):
    trips.remove("")
    first = trips.fetch()
    assert_right(first, trips)
    assert trips.fetch() == first
    assert trips.num_builds == 2
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
    with Repo.init(str(other.parent), no_scm=True) as repo:
        (stage,) = repo.add(str(other))
        assert stage.outs[0].hash_info.value == fetched.dvc_hash


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


def test_fetch_with_a_changed_object_in_the_cache_takes_the_remote_and_mends_the_cache(trips):
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
        "import sys, pathlib; from resources.dvc import DatasetStore; project = pathlib.Path(sys.argv[1]); "
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


def test_publish_of_a_next_version_keeps_the_files_of_the_earlier_one(unpublished):
    unpublished.publish("v1", 1)
    unpublished.publish("v3", 3)
    first, next_one = unpublished.fetch("v1"), unpublished.fetch("v3")
    assert [path.name for path in sorted(first.path.iterdir())] == ["2013-01.parquet"]
    assert (first.path / "2013-01.parquet").read_bytes() == (next_one.path / "2013-01.parquet").read_bytes()
    unpublished.publish("v2", 2)
    assert list(read_versions(unpublished.project)["trips"]) == ["v1", "v3", "v2"]


def test_publish_of_changed_files_is_refused_and_writes_nothing(trips):
    before = versions_path(trips.project).read_text()
    trips.write_builder("row * month", "row * month + (month == 2)")
    with pytest.raises(DatasetError, match=r"trips@v4 changes or lacks files of trips@v3") as caught:
        trips.publish("v4", 4)
    assert caught.value.value == ["2013-02.parquet"]
    trips.write_builder("range(1,", "range(2,")
    with pytest.raises(DatasetError, match=r"2013-01\.parquet"):
        trips.publish("v4", 4)
    assert versions_path(trips.project).read_text() == before


def test_publish_of_the_same_content_or_name_is_refused(trips):
    with pytest.raises(DatasetError, match="the same as trips@v3"):
        trips.publish("v4", 3)
    with pytest.raises(DatasetError, match="already has this version"):
        trips.publish("v3", 2)


def test_publish_of_a_version_without_rows_is_refused(unpublished):
    unpublished.write_builder("rows.to_parquet", "rows[:0].to_parquet")
    with pytest.raises(DatasetError, match="has no rows"):
        unpublished.publish("v1", 1)


@pytest.mark.parametrize(
    ("revision", "parameters", "message"),
    [
        ("v4", {"files": 4, "source": "1; rm x"}, "can't be published"),
        ("v4", {"files": float("nan"), "source": "1"}, "can't be published"),
        ("V 4", {"files": 4, "source": "1"}, "can't be published"),
        ("v4", {"file": 4, "source": "1"}, "did you mean 'files'"),
        ("v4", {"files": 4}, r"missing[^$]*source"),
    ],
)
def test_publish_of_bad_parameters_is_refused_before_a_build(trips, revision, parameters, message):
    with pytest.raises(DatasetError, match=message):
        trips.store.publish(trips.project, "trips", revision, parameters)
    assert trips.num_builds == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outs": ["data/other"]}, "must write one folder"),
        ({"wdir": "build"}, "must write one folder"),
        ({"deps": ["build/missing.py"]}, "missing file"),
        ({"deps": ["../secret.py"]}, "outside the project"),
        ({"cmd": "python build/dataset.py ${file}"}, "Could not find 'file'"),
    ],
)
def test_publish_of_an_unfit_stage_is_refused(unpublished, change, message):
    stage = DVC_YAML["stages"]["trips"] | change
    (unpublished.project / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"trips": stage}}))
    with pytest.raises(DatasetError, match=message):
        unpublished.publish("v3", 3)


def test_publish_of_an_unknown_dataset_is_refused(unpublished):
    (unpublished.project / "data" / "trip.yaml").write_text("files: 3\n")
    with pytest.raises(DatasetError, match="did you mean 'trips'"):
        unpublished.store.publish(unpublished.project, "trip", "v1", {"files": 3})


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


def test_publish_into_a_read_only_project_is_refused_before_the_build(unpublished, monkeypatch):
    monkeypatch.setattr("lifecycle.data.versions.os.access", lambda path, mode: False)
    with pytest.raises(DatasetError, match=r"versions\.yaml cannot be written"):
        unpublished.publish("v1", 1)
    assert unpublished.num_builds == 0
