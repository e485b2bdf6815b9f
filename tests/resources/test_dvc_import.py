"""Versions that are imported: from a folder, a file:// address and a real HTTP server on loopback."""

import functools
import http.server
import shutil
import threading

import pandas as pd
import pytest
from trips_project import assert_right, flip_byte

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.resources.dvc_origin import declared_source


@pytest.fixture
def source(tmp_path):
    """A folder as an export would leave it, outside the project."""
    folder = tmp_path / "exports" / "clicks"
    folder.mkdir(parents=True)
    for month in (1, 2):
        rows = pd.DataFrame({"id": range(month * 100, month * 100 + 50), "value": [float(month)] * 50})
        rows.to_parquet(folder / f"2024-{month:02}.parquet")
    return folder


def publish(trips, revision, source, **options):
    return trips.store.publish(trips.project, "clicks", revision, {}, source=source, **options)


def fetch(trips, revision):
    return trips.store.fetch(trips.project, "clicks", revision, trips.store.datasets)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_publish_from_a_folder_keeps_its_files_and_its_address(trips, source, scheme):
    version = publish(trips, "v1", f"{scheme}{source}")
    assert (version.rows, version.source, version.parameters) == (100, f"{scheme}{source}", {})
    assert read_versions(trips.project)["clicks"]["v1"] == version
    fetched = fetch(trips, "v1")
    assert sorted(path.name for path in fetched.path.iterdir()) == ["2024-01.parquet", "2024-02.parquet"]
    written = " M data/contents.jsonl\n M data/versions.yaml\n?? data/clicks@v1.dvc\n"
    assert trips.git("status", "--porcelain") == written
    trips.commit()
    # DVC's objects hold it: the source may go.
    shutil.rmtree(source)
    trips.remove("datasets")
    assert fetch(trips, "v1") == fetched
    assert_right(trips.fetch(), trips)


def test_publish_from_a_source_that_grew_adds_files_and_one_that_changed_is_refused(trips, source):
    publish(trips, "v1", str(source))
    pd.DataFrame({"id": [300], "value": [3.0]}).to_parquet(source / "2024-03.parquet")
    assert publish(trips, "v2", str(source)).rows == 101
    pd.DataFrame({"id": range(100, 150), "value": [9.0] * 50}).to_parquet(source / "2024-01.parquet")
    with pytest.raises(DatasetError, match=r"clicks@v3 changes or lacks files of clicks@v2") as caught:
        publish(trips, "v3", str(source))
    assert caught.value.value == ["2024-01.parquet"]
    assert publish(trips, "v3", str(source), backfill="the counter was wrong in January").backfill is not None


def test_fetch_from_a_source_that_changed_since_is_refused_with_both_hashes(trips, source):
    version = publish(trips, "v1", str(source))
    pd.DataFrame({"id": [1], "value": [3.0]}).to_parquet(source / "2024-01.parquet")
    trips.remove("datasets", "dvc")
    with pytest.raises(DatasetError, match=rf"clicks@v1 .*expected {version.content_hash}") as caught:
        fetch(trips, "v1")
    assert "the source changed since" in caught.value.fix


def test_fetch_from_a_source_that_is_gone_names_version_and_lost_files(trips, source):
    publish(trips, "v1", str(source))
    shutil.rmtree(source)
    trips.remove("datasets")
    for path in trips.objects("cache", "remote"):
        flip_byte(path)
    with pytest.raises(DatasetError, match=r"clicks@v1 is not to be had: .*2024-0\d\.parquet") as caught:
        fetch(trips, "v1")
    assert "restore the objects" in caught.value.fix


def test_publish_over_http_imports_one_file(trips, source):
    handler = functools.partial(Quiet, directory=str(source))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        version = publish(trips, "v1", f"{address}/2024-01.parquet")
        with pytest.raises(DatasetError, match="could not import clicks"):
            publish(trips, "v2", f"{address}/2024-09.parquet")
        server.shutdown()
    assert version.rows == 50
    assert [path.name for path in fetch(trips, "v1").path.iterdir()] == ["2024-01.parquet"]


def test_publish_from_a_storage_whose_package_is_missing_says_what_to_install(trips):
    with pytest.raises(DatasetError) as caught:
        publish(trips, "v1", "gs://bucket/rows/")
    assert "[s3]" in caught.value.fix


def test_publish_from_a_folder_with_other_files_is_refused_and_writes_nothing(trips, source):
    (source / "notes.txt").write_text("x")
    with pytest.raises(DatasetError, match="not Parquet"):
        publish(trips, "v1", str(source))
    assert "clicks" not in read_versions(trips.project)


def test_declared_source_is_the_address_that_dvc_import_url_wrote(trips, source):
    assert declared_source(trips.project, "clicks") is None
    path = trips.project / "data" / "clicks.dvc"
    path.write_text(f"deps:\n- path: {source}\nouts:\n- path: clicks\n")
    assert declared_source(trips.project, "clicks") == str(source)
    path.write_text("outs:\n- path: clicks\n")
    with pytest.raises(DatasetError, match="names no address"):
        declared_source(trips.project, "clicks")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Answers without a line on stderr."""

    def log_message(self, format, *arguments):
        pass
