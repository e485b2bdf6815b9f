"""A project with a dataset of three small files, for the tests of resources/dvc.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.resources.dvc import DatasetStore, FetchedDataset

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
# Every build adds a line to a file, so that a test can prove that none ran. Without pandas, whose import takes 0.5 s.
DATASET_PY = """
import argparse, os, pathlib
import pyarrow as pa, pyarrow.parquet as pq

parser = argparse.ArgumentParser()
for name in ("--out", "--files", "--source"):
    parser.add_argument(name)
arguments = parser.parse_args()
with open(os.environ["TRIPS_BUILDS"], "a") as file:
    file.write("built\\n")
out = pathlib.Path(arguments.out)
out.mkdir(parents=True)
for month in range(1, int(arguments.files) + 1):
    rows = pa.table({"month": [month] * 50, "delay": [float(row * month) for row in range(50)]})
    pq.write_table(rows, out / f"2013-{month:02}.parquet", compression=COMPRESSION)
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


def declare_remote(trips: Trips, config: str) -> None:
    """What `dvc remote add` writes."""
    (trips.project / ".dvc").mkdir(exist_ok=True)
    (trips.project / ".dvc" / "config").write_text(config)


def clone(trips: Trips, tmp_path) -> Trips:
    """A second person's clone, which has nothing but what was committed."""
    trips.commit()
    other = Trips(tmp_path / "other")
    subprocess.run(["git", "clone", "-q", trips.project, other.project], check=True)
    return other


def dvc(trips: Trips, *arguments: str) -> str:
    """What plain `dvc` prints in the project."""
    site = {"DVC_SITE_CACHE_DIR": str(trips.project.parent / "site"), "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=trips.project, env={**os.environ, **site},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    assert len(fetched.files) + (fetched.tree.files if fetched.tree else 0) == len(found.files)
