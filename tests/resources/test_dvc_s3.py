"""DVC's remote on a real S3 server (rclone's): two clones share bytes, a refusal is one error, large files stream."""

import importlib.util
import os
import subprocess
import sys

import pytest
from trips_project import Trips, assert_right, clone, declare_remote, dvc

from tests.s3_servers import BUCKET, KEY, SECRET, rclone_server
from trainworthy.lifecycle.errors import DatasetError

pytestmark = pytest.mark.slow

# Of them the client sends one part of 50 MB or two at a time, and holds each twice.
LARGE_MB = 320
# Keeps a large file, sends it, and reads it back into an empty state folder; prints the growth of memory in MB.
STREAMS = """
import hashlib, pathlib, resource, shutil, sys
from trainworthy.resources.dvc_objects import DvcObjects

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

project = pathlib.Path(sys.argv[1])
for name in ("small", "large"):
    (project / name).mkdir()
(project / "small" / "a.parquet").write_bytes(b"a")
with (project / "large" / "a.parquet").open("wb") as file:
    file.truncate(int(sys.argv[2]) * 2**20)
objects = DvcObjects(project / "state", project)
objects.push(objects.keep(project / "small"))
before = peak_mb()
dvc_hash = objects.keep(project / "large")
objects.push(dvc_hash)
shutil.rmtree(project / "state")
assert objects.read(dvc_hash, project / "back") == []
assert (project / "back" / "a.parquet").stat().st_size == (project / "large" / "a.parquet").stat().st_size
print(peak_mb() - before)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server's address and folder; each folder in it is a bucket."""
    if importlib.util.find_spec("dvc_s3") is None and not os.environ.get("CI"):
        pytest.skip("dvc-s3 is not installed")
    folder = tmp_path_factory.mktemp("s3")
    with rclone_server(folder) as address:
        yield address, folder / BUCKET


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def declare_s3(trips: Trips, address: str, bucket: str = BUCKET) -> None:
    url = f"    url = s3://{bucket}/{trips.project.parent.name}\n    endpointurl = {address}\n"
    declare_remote(trips, f"[core]\n    remote = team\n['remote \"team\"']\n{url}")


def test_version_that_was_published_to_s3_comes_to_a_fresh_clone_with_equal_bytes(unpublished, server, tmp_path):
    address, bucket = server
    declare_s3(unpublished, address)
    unpublished.publish("v3", 3)
    assert len([*bucket.rglob("files/md5/*/*")]) == 4
    published = unpublished.fetch().path
    other = clone(unpublished, tmp_path)
    dvc(other, "pull", "data/trips@v3.dvc")
    pulled = other.project / "data" / "trips@v3"
    assert sorted(path.name for path in pulled.iterdir()) == sorted(path.name for path in published.iterdir())
    assert all((pulled / path.name).read_bytes() == path.read_bytes() for path in published.iterdir())
    assert_right(other.fetch(), other)
    assert other.num_builds + unpublished.num_builds == 1
    declare_s3(other, address)
    dvc(other, "push", "data/trips@v3.dvc")
    assert len([*(bucket / "other").rglob("files/md5/*/*")]) == 4


@pytest.mark.parametrize(
    ("secret", "bucket", "told"),
    [("wrong", BUCKET, "signature"), (SECRET, "absent", "bucket does not exist")],
    ids=["credentials", "bucket"],
)
def test_s3_that_refuses_is_one_error_with_its_words_and_no_entry(
    unpublished, server, monkeypatch, secret, bucket, told
):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    declare_s3(unpublished, server[0], bucket)
    before = sorted(server[1].parent.rglob("*"))
    with pytest.raises(DatasetError, match=told) as caught:
        unpublished.publish("v3", 3)
    assert caught.value.code == "dvc_remote"
    assert "credentials" in caught.value.fix
    assert sorted(path.name for path in (unpublished.project / "data").iterdir()) == ["trips.yaml"]
    assert sorted(server[1].parent.rglob("*")) == before


def test_file_that_is_larger_than_a_part_streams_to_s3_and_back(unpublished, server):
    declare_s3(unpublished, server[0])
    done = subprocess.run(
        [sys.executable, "-c", STREAMS, unpublished.project, str(LARGE_MB)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < LARGE_MB
