"""Publishing a version through real DVC: what is entered, and what is refused."""

import pytest
import yaml
from refusals import refused
from trips_project import DVC_YAML, assert_right

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.contents import contents_path, read_contents
from trainworthy.lifecycle.files.materialised import tree_here
from trainworthy.lifecycle.files.versions import read_versions, versions_path


def test_publish_writes_the_entry_and_fetch_reads_it_without_a_build(trips):
    entry = yaml.safe_load(versions_path(trips.project).read_text())["trips"]["v3"]
    assert (entry["rows"], entry["parameters"]) == (150, {"files": 3, "source": "1.0.0"})
    fetched = trips.fetch()
    assert_right(fetched, trips)
    assert fetched.dvc_hash == entry["dvc_hash"]
    assert trips.num_builds == 1


def test_publish_of_a_next_version_keeps_the_files_of_the_earlier_one(unpublished):
    unpublished.publish("v1", 1)
    unpublished.publish("v3", 3)
    first, next_one = unpublished.fetch("v1"), unpublished.fetch("v3")
    assert [path.name for path in sorted(first.path.iterdir())] == ["2013-01.parquet"]
    assert (first.path / "2013-01.parquet").read_bytes() == (next_one.path / "2013-01.parquet").read_bytes()
    unpublished.publish("v2", 2)
    assert list(read_versions(unpublished.project)["trips"]) == ["v1", "v3", "v2"]


def test_publish_keeps_files_that_rows_name_and_fetch_brings_them_back(unpublished):
    """From DVC's objects, byte for byte; and a next version may not change them."""
    unpublished.write_builder(
        "out.mkdir(parents=True)",
        "(out / 'files' / 'b').mkdir(parents=True)\n"
        "for name in ('1.png', 'b/2.png'):\n    (out / 'files' / name).write_bytes(name.encode())",
    )
    unpublished.publish("v1", 1)
    unpublished.remove("datasets")
    fetched = unpublished.fetch("v1")
    assert_right(fetched, unpublished, "v1")
    assert (fetched.path / "files" / "b" / "2.png").read_bytes() == b"b/2.png"
    assert fetched.tree is not None
    assert (fetched.tree.files, fetched.tree.bytes) == (2, len("1.png") + len("b/2.png"))
    assert fetched.tree == tree_here(fetched.path)
    assert unpublished.num_builds == 1
    unpublished.write_builder(
        "out.mkdir(parents=True)",
        "(out / 'files').mkdir(parents=True)\n(out / 'files' / '1.png').write_bytes(b'other')",
    )
    with refused(DatasetError, "dataset.changed_files") as caught:
        unpublished.publish("v2", 2)
    assert caught.value.value == ["files/1.png", "files/b/2.png"]


def test_publish_of_changed_files_is_refused_and_writes_nothing(trips):
    before = versions_path(trips.project).read_text()
    trips.write_builder("row * month", "row * month + (month == 2)")
    with refused(DatasetError, "dataset.changed_files") as caught:
        trips.publish("v4", 4)
    assert caught.value.value == ["2013-02.parquet"]
    trips.write_builder("range(1,", "range(2,")
    with refused(DatasetError, "dataset.changed_files") as caught:
        trips.publish("v4", 4)
    assert "2013-01.parquet" in str(caught.value.value)
    assert versions_path(trips.project).read_text() == before


def test_publish_of_the_same_content_or_name_is_refused(trips):
    with refused(DatasetError, "dataset.same_content"):
        trips.publish("v4", 3)
    with refused(DatasetError, "dataset.published"):
        trips.publish("v3", 2)


def test_publish_of_a_version_without_rows_is_refused(unpublished):
    unpublished.write_builder("(rows, ", "(rows[:0], ")
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


def test_publish_of_a_stage_whose_bare_name_yaml_reads_as_a_boolean_is_refused(unpublished):
    (unpublished.project / "dvc.yaml").write_text("stages: {yes: {cmd: echo}, trips: {cmd: echo}}\n")
    (unpublished.project / "data" / "yes.yaml").write_text("files: 3\n")
    with pytest.raises(DatasetError, match="known: True, trips"):
        unpublished.store.publish(unpublished.project, "yes", "v1", {"files": 3})


def test_publish_into_a_read_only_project_is_refused_before_the_build(unpublished, monkeypatch):
    monkeypatch.setattr("trainworthy.lifecycle.files.versions.os.access", lambda path, mode: False)
    with refused(DatasetError, "versions.unwritable"):
        unpublished.publish("v1", 1)
    assert unpublished.num_builds == 0


def test_publish_of_a_declared_change_is_entered_with_its_reason_and_the_next_keeps_it(trips):
    trips.write_builder("row * month", "row * month + (month == 2)")
    options = {"files": 4, "source": "1.0.0"}
    version = trips.store.publish(trips.project, "trips", "v4", options, backfill="February was in the wrong unit")
    assert version.backfill is not None
    assert (version.backfill.of, version.backfill.reason) == ("v3", "February was in the wrong unit")
    assert read_versions(trips.project)["trips"]["v4"] == version
    assert trips.publish("v5", 5).backfill is None


def test_publish_of_a_declared_change_that_changes_nothing_is_refused(trips):
    with pytest.raises(DatasetError, match="changes no file of trips@v3"):
        trips.store.publish(trips.project, "trips", "v4", {"files": 4, "source": "1.0.0"}, backfill="why not")
    assert "v4" not in read_versions(trips.project)["trips"]


def test_publish_writes_the_files_of_every_version_that_has_no_line_yet(trips):
    contents_path(trips.project).unlink()
    trips.publish("v4", 4)
    told = {(line.dataset, line.version): len(line.files) for line in read_contents(trips.project).values()}
    assert told == {("trips", "v3"): 3, ("trips", "v4"): 4}


def test_publish_with_every_line_fetches_no_earlier_version(trips):
    trips.remove("")
    trips.publish("v4", 4)
    assert trips.num_builds == 2
