"""The door to DVC: published dataset versions, read back without a checkout, built by DVC where they are missing.

Everything lies below the state folder: `dvc/cache` and `dvc/remote` hold DVC's objects, `dvc/work` the temporary
workspaces that versions are built in, `datasets` the folders that runs read. A project's own tree, its dvc.lock and
its git status stay as they are. DVC itself needs no set-up.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lifecycle.data.content import ContentHash, content_hash, parquet_files
from lifecycle.data.materialised import Manifest, files_folder, install, intact
from lifecycle.data.versions import PublishedVersion, add_version, check_entry, published_version, read_versions
from lifecycle.errors import DatasetError
from lifecycle.records import StoredFile
from resources.dvc_stage import build_stage, check_parameters

REMOTE = "local"


@dataclass(frozen=True)
class FetchedDataset:
    """A published version on this machine. `path` holds its Parquet files; `files` are relative to the state folder.

    `dvc_hash` differs from the published one where the rows were rebuilt as other bytes, by another pyarrow.
    """

    path: Path
    rows: int
    content_hash: str
    dvc_hash: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class DatasetStore:
    """Published versions of a project's datasets, below the folder `state`."""

    state: Path

    def fetch(self, project: Path, name: str, revision: str, into: Path) -> FetchedDataset:
        """A published version below `into`: as it lies there, from DVC's objects, or rebuilt; in this order.

        Args:
            project: folder that holds dvc.yaml and data/versions.yaml.
            name: dataset, as in dvc.yaml and data/versions.yaml.
            revision: published version, for example `v9`.
            into: folder below `state`; the files go to `into/<name>/<content hash>/files`.

        Raises DatasetError if the version is unknown, or if no source gives the content that was published.
        """
        version = published_version(project, name, revision)
        target = into / name / version.content_hash
        # Without the lock: whoever only reads must not wait for another version's build.
        manifest = _quietly_intact(target, version)
        if manifest is None:
            with self._locked():
                manifest = self._obtain(project, name, revision, version, target)
        files = files_folder(target)
        return FetchedDataset(
            path=files,
            rows=version.rows,
            content_hash=version.content_hash,
            dvc_hash=manifest.dvc_hash,
            files=tuple(_below(self.state, files, file.stored) for file in manifest.files),
        )

    def publish(
        self, project: Path, name: str, revision: str, parameters: dict[str, bool | int | float | str]
    ) -> PublishedVersion:
        """Build a new version, keep its bytes and write its entry to data/versions.yaml.

        Raises DatasetError if the version exists, a parameter is unknown, the build fails, or a file differs from
        the file of the same name in an earlier version: a next version adds files only.
        """
        published = read_versions(project).get(name, {})
        if revision in published:
            raise DatasetError(f"dataset {name} already has this version", value=revision, fix="take a new name")
        check_entry(name, revision, parameters)
        check_parameters(project, name, parameters)
        with self._locked(), self._workspace() as work:
            _say(f"building {name}@{revision} ...")
            folder = build_stage(project, name, parameters, work)
            content = content_hash(folder)
            for earlier, version in published.items():
                target = self.datasets / name / version.content_hash
                known = self._obtain(project, name, earlier, version, target).content
                _refuse_changes(f"{name}@{revision}", content, f"{name}@{earlier}", known)
            version = PublishedVersion(
                parameters=parameters, rows=content.rows, content_hash=content.sha256, dvc_hash=self._keep(folder)
            )
            install(folder, self.datasets / name / content.sha256, content, version.dvc_hash)
            add_version(project, name, revision, version)
        return version

    @property
    def datasets(self) -> Path:
        """Where `publish` leaves the files of the versions; the usual `into` of `fetch`."""
        return self.state / "datasets"

    def _obtain(self, project: Path, name: str, revision: str, version: PublishedVersion, target: Path) -> Manifest:
        """The manifest of a verified `target`, however it comes about. The caller holds the lock."""
        label = f"{name}@{revision}"
        manifest = _said_intact(target, version, label)
        if manifest is not None:
            return manifest
        with self._workspace() as work:
            for dvc_hash in self._dvc_hashes(version):
                folder = work / "read"
                if self._read(dvc_hash, folder) and _matches(folder, version):
                    content = content_hash(folder)
                    return install(folder, target, content, self._keep(folder))
                shutil.rmtree(folder, ignore_errors=True)
            _say(f"building {label} ...")
            folder = build_stage(project, name, version.parameters, work)
            content = content_hash(folder)
            if (content.sha256, content.rows) != (version.content_hash, version.rows):
                raise _other_content(label, version, content, self._changed_files(version, folder))
            dvc_hash = self._keep(folder)
            if dvc_hash != version.dvc_hash:
                _say(f"{label}: other bytes than published ({dvc_hash}, not {version.dvc_hash}), equal rows: accepted")
                self._note(version).parent.mkdir(parents=True, exist_ok=True)
                self._note(version).write_text(dvc_hash, encoding="utf-8")
            return install(folder, target, content, dvc_hash)

    def _dvc_hashes(self, version: PublishedVersion) -> list[str]:
        """The published DVC hash and, if this machine rebuilt the same rows as other bytes, the one of those."""
        note = self._note(version)
        return [version.dvc_hash, *([note.read_text(encoding="utf-8").strip()] if note.is_file() else [])]

    def _note(self, version: PublishedVersion) -> Path:
        return self.state / "dvc" / "rebuilt" / version.content_hash

    def _read(self, dvc_hash: str, folder: Path) -> bool:
        """Copy a version's files out of DVC's cache or remote; False if an object is missing or changed in both."""
        with self._stores() as stores:
            files = _tree(stores, dvc_hash)
            if files is None:
                return False
            for name, md5 in files.items():
                data = _sound_object(stores, md5)
                if data is None:
                    return False
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        return True

    def _keep(self, folder: Path) -> str:
        """Put a folder's files into DVC's cache and remote, mending what is missing or changed; its DVC hash."""
        from dvc.fs import localfs
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.tree import Tree

        tree = Tree()
        paths = parquet_files(folder)
        hashes = {name: _md5(path.read_bytes()) for name, path in paths.items()}
        for name, md5 in hashes.items():
            tree.add(tuple(name.split("/")), None, HashInfo("md5", md5))
        tree.digest()
        with self._stores() as stores:
            for store in stores:
                # The list of files goes last: whoever finds it finds the files.
                for name, md5 in hashes.items():
                    _sound_object([store], md5)
                    store.add(str(paths[name]), localfs, md5)
                _sound_object([store], tree.oid)
                store.add(tree.path, tree.fs, tree.oid)
        return str(tree.oid)

    def _changed_files(self, version: PublishedVersion, folder: Path) -> list[str]:
        """Names of built files whose bytes differ from the published ones, where DVC still knows those."""
        with self._stores() as stores:
            published = _tree(stores, version.dvc_hash) or {}
        built = {name: _md5(path.read_bytes()) for name, path in parquet_files(folder).items()}
        if not published:
            return []
        return sorted(name for name in published.keys() | built.keys() if published.get(name) != built.get(name))

    @contextlib.contextmanager
    def _stores(self) -> Iterator[list[Any]]:
        """DVC's object stores, nearest first: the cache, then the remote."""
        from dvc.repo import Repo

        base = self.state.resolve() / "dvc"
        (base / "home" / ".dvc").mkdir(parents=True, exist_ok=True)
        core = {"analytics": False, "no_scm": True, "remote": REMOTE, "site_cache_dir": str(base / "site")}
        config = {
            "core": core,
            "cache": {"dir": str(base / "cache")},
            "remote": {REMOTE: {"url": str(base / "remote")}},
        }
        with Repo(str(base / "home"), config=config) as repo:
            yield [repo.cache.local, repo.cloud.get_remote_odb(REMOTE)]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One builder or copier at a time on this state folder; the lock goes with its process."""
        path = self.state / "dvc" / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say("waiting for another process that fetches or builds a dataset ...")
                fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever holds the lock is alone: workspaces still there belong to killed processes.
            shutil.rmtree(self.state / "dvc" / "work", ignore_errors=True)
            yield

    @contextlib.contextmanager
    def _workspace(self) -> Iterator[Path]:
        """A temporary folder on the state folder's file system."""
        base = self.state.resolve() / "dvc" / "work"
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as work:
            yield Path(work)


def _quietly_intact(target: Path, version: PublishedVersion) -> Manifest | None:
    try:
        manifest = intact(target, version.content_hash)
    except (DatasetError, OSError):
        return None  # looked at again under the lock, where nobody replaces it meanwhile
    return manifest if manifest and manifest.content.rows == version.rows else None


def _said_intact(target: Path, version: PublishedVersion, label: str) -> Manifest | None:
    """As `intact`, but damage is told and then counts as missing."""
    try:
        manifest = intact(target, version.content_hash)
    except DatasetError as error:
        _say(f"{label}: {error.problem} ({error.value}); fetching it again")
        return None
    return manifest if manifest and manifest.content.rows == version.rows else None


def _matches(folder: Path, version: PublishedVersion) -> bool:
    try:
        content = content_hash(folder)
    except DatasetError:
        return False
    return (content.sha256, content.rows) == (version.content_hash, version.rows)


def _tree(stores: list[Any], dvc_hash: str) -> dict[str, str] | None:
    """Relative name and md5 of each file of a version; None if no store has a sound list."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    for store in stores:
        if _sound_object([store], dvc_hash) is not None:
            tree = Tree.load(store, HashInfo("md5", dvc_hash))
            return {"/".join(parts): str(info.value) for parts, _, info in tree if info is not None}
    return None


def _sound_object(stores: list[Any], oid: str) -> bytes | None:
    """An object's bytes from the first store where they still have their md5; None if there is none.

    A changed object is removed. DVC doesn't look again at an object once its file is read-only, so it would
    go on using the wrong bytes, and never replace them.
    """
    for store in stores:
        path = store.oid_to_path(oid)
        if not store.fs.exists(path):
            continue
        data = store.fs.cat_file(path)
        if _md5(data) == oid.removesuffix(".dir"):
            return data
        _say(f"a DVC object is damaged and was removed: {path}")
        store.fs.remove(path)
    return None


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _refuse_changes(new: str, content: ContentHash, earlier: str, known: ContentHash) -> None:
    """Raise DatasetError unless one of the two versions is the other plus files."""
    built = {file.name: file.sha256 for file in content.files}
    before = {file.name: file.sha256 for file in known.files}
    if built == before:
        raise DatasetError(f"{new} is the same as {earlier}", value=content.sha256, fix="use that version")
    changed = sorted(name for name in built.keys() & before.keys() if built[name] != before[name])
    # A version with fewer files may be published later too; then it has to be a part of the other.
    missing = sorted(set(before) - set(built)) if set(built) - set(before) else []
    if changed or missing:
        raise DatasetError(
            f"{new} changes or lacks files of {earlier}: a next version adds files only",
            value=(changed + missing)[:10],
            fix="mend dataset.py or the parameters; for other rows of the same time, publish a dataset of a new name",
        )


def _other_content(label: str, version: PublishedVersion, found: ContentHash, changed: list[str]) -> DatasetError:
    files = f"files that differ: {', '.join(changed)}" if changed else f"files: {len(found.files)}"
    return DatasetError(
        f"{label} was built with other content than published: "
        f"expected {version.content_hash} ({version.rows} rows), found {found.sha256} ({found.rows} rows); {files}",
        value=version.parameters,
        fix="use the code and packages of the commit that published it, or publish the new rows as another version",
    )


def _below(state: Path, folder: Path, file: StoredFile) -> StoredFile:
    path = (folder / file.path).resolve().relative_to(state.resolve())
    return file.model_copy(update={"path": path.as_posix()})


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
