"""DVC's cache and remote as a place to keep and read the files of a dataset version: the only importer of dvc.

The remote is the one that the project's `.dvc/config` names, so that people share bytes, else `dvc/remote` of the state
folder. Objects are read through DVC's API, without a checkout and in pieces; each is compared with its md5 on the way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import DatasetError, TrainworthyError
from trainworthy.lifecycle.files.content import all_files
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.provenance import without_credentials

REMOTE = "local"
LIST_OF_FILES = "the list of its files"
# Files are read in pieces of this size: one may be larger than the memory.
PIECE_BYTES = 8 * 2**20
# A read that went wrong once is no damage: shares and object storage give wrong or short answers now and then.
READS = 2


@dataclass(frozen=True)
class _Store:
    """One of DVC's object stores; `own`: it lies below the state folder, so damaged objects may be removed from it."""

    odb: Any
    own: bool


@dataclass(frozen=True)
class DvcObjects:
    """The cache below `folder`, and the remote of `project` or below `folder`. A version's name is `<md5>.dir`.

    Nothing is ever removed from the project's remote: other people and other projects read there.
    """

    folder: Path
    project: Path

    def read(self, dvc_hash: str, folder: Path) -> list[str]:
        """Copy a version's files to `folder`; names of those that are missing or changed in both places, [] if none.

        All files that are sound are copied. If the list of files itself is lost, that is the one name.
        """
        lost: list[str] = []
        with self._stores() as stores:
            files = _tree(stores, dvc_hash)
            if files is None:
                return [LIST_OF_FILES]
            for name, md5 in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not any(_copied(store, md5, path) for store in stores):
                    path.unlink(missing_ok=True)
                    lost.append(name)
        return lost

    def keep(self, folder: Path) -> str:
        """Put a folder's files into both places, with what is missing or, below `folder`, damaged there; its hash."""
        from dvc.fs import localfs
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.tree import Tree

        tree, paths, hashes = Tree(), all_files(folder), _hashes(folder)
        for name, md5 in hashes.items():
            tree.add(tuple(name.split("/")), None, HashInfo("md5", md5))
        tree.digest()
        dvc_hash = str(tree.oid)
        with self._stores() as stores:
            for store in stores:
                for name, md5 in hashes.items():
                    _clear_damaged(store, md5)
                    # Never verified by DVC, whatever the remote's settings say: it removes what it finds damaged.
                    store.odb.add(str(paths[name]), localfs, md5, verify=False)
                # The list of files goes last: whoever finds it finds the files.
                _clear_damaged(store, dvc_hash)
                store.odb.add(tree.path, tree.fs, dvc_hash, verify=False)
        return dvc_hash

    def changed_files(self, dvc_hash: str, folder: Path) -> list[str]:
        """Names of files in `folder` whose bytes differ from the version's; [] if DVC has lost the version's list."""
        with self._stores() as stores:
            kept = _tree(stores, dvc_hash)
        if kept is None:
            return []
        found = _hashes(folder)
        return sorted(name for name in kept.keys() | found.keys() if kept.get(name) != found.get(name))

    @contextlib.contextmanager
    def _stores(self) -> Iterator[list[_Store]]:
        """DVC's object stores, nearest first: the cache, then the remote. Raises DatasetError if that refuses."""
        from dvc.repo import Repo

        base = self.folder.resolve()
        declared = project_remote(self.project)
        remote = declared or {"url": str(base / "remote")}
        # A repository of our own: opening the project's would write into the user's tree.
        (base / "home" / ".dvc").mkdir(parents=True, exist_ok=True)
        config = {
            "core": {"analytics": False, "no_scm": True, "remote": REMOTE, "site_cache_dir": str(base / "site")},
            "cache": {"dir": str(base / "cache")},
            "remote": {REMOTE: remote},
        }
        try:
            with Repo(str(base / "home"), config=config) as repo:
                yield [_Store(repo.cache.local, True), _Store(repo.cloud.get_remote_odb(REMOTE), declared is None)]
        except TrainworthyError:
            raise
        except Exception as error:
            # Each storage has errors of its own, which share no class.
            raise _refused(error, str(remote["url"])) from error


def project_remote(project: Path) -> dict[str, Any] | None:
    """The default remote of the project's DVC settings, its address absolute; None if there is none.

    Also None for var/dvc/remote of the project, which is the state folder's own wherever that lies. Raises DatasetError
    for settings that DVC cannot read, or a default remote that they do not have.
    """
    from dvc.config import Config, ConfigError

    folder = project.resolve() / ".dvc"
    if not (folder / "config").is_file():
        return None
    fix = "mend it, or look with: dvc remote list; dvc remote default"
    try:
        settings = Config(str(folder))
    except ConfigError as error:
        raise DatasetError(f"DVC's settings cannot be read: {error}", value=str(folder / "config"), fix=fix) from error
    name = settings["core"].get("remote")
    if not name:
        return None
    if name not in settings["remote"]:
        raise DatasetError("DVC's default remote is not declared", value=name, fix=fix)
    found = dict(settings["remote"][name])
    own = project.resolve() / "var" / "dvc" / "remote"
    return None if os.path.normpath(str(found["url"])) == str(own) else found


def write_pointer(project: Path, name: str, revision: str, dvc_hash: str) -> Path:
    """Write data/<name>@<revision>.dvc, by which `dvc pull`, `list` and `get` know the version's files; its path."""
    path = project / "data" / f"{name}@{revision}.dvc"
    path.write_text(f"outs:\n- md5: {dvc_hash}\n  hash: md5\n  path: {name}@{revision}\n", encoding="utf-8")
    return path


def _refused(error: Exception, url: str) -> DatasetError:
    told = str(error).strip() or type(error).__name__
    missing = "is supported, but requires" in told
    fix = (
        "install the extra of that storage, for S3: pip install -e '.[s3]'"
        if missing
        else "look at the address, the rights and the credentials there (dvc remote list); without a remote in "
        ".dvc/config the state folder keeps the bytes"
    )
    return DatasetError(f"DVC's remote did not take part: {told}", value=without_credentials(url), fix=fix)


def _tree(stores: list[_Store], dvc_hash: str) -> dict[str, str] | None:
    """Relative name and md5 of each file of a version; None if no store has a sound list."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    for store in stores:
        if _copied(store, dvc_hash, None):
            tree = Tree.load(store.odb, HashInfo("md5", dvc_hash))
            return {"/".join(parts): str(info.value) for parts, _, info in tree if info is not None}
    return None


def _copied(store: _Store, oid: str, path: Path | None) -> bool:
    """Copy an object to `path`, if one is given; False if the store lacks it or has it with other bytes.

    A damaged object of an own store is removed. DVC doesn't look again at an object once its file is read-only, so it
    would go on using the wrong bytes, and never replace them.
    """
    source = store.odb.oid_to_path(oid)
    if not store.odb.fs.exists(source):
        return False
    if any(_read(store, source, path) == oid.removesuffix(".dir") for _ in range(READS)):
        return True
    if store.own:
        store.odb.fs.remove(source)
    done = "was removed" if store.own else "is not used; remove it there, or restore it from a backup"
    print(f"a DVC object is damaged and {done}: {source}", file=sys.stderr, flush=True)
    return False


def _read(store: _Store, source: str, path: Path | None) -> str:
    """The md5 of an object as it is read now, copied to `path` if one is given."""
    digest = hashlib.md5(usedforsecurity=False)
    with store.odb.fs.open(source, "rb") as file, contextlib.nullcontext() if path is None else path.open("wb") as copy:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            if copy is not None:
                copy.write(piece)
    return digest.hexdigest()


def _clear_damaged(store: _Store, oid: str) -> None:
    """Look for a damaged object in the way, on a disk: elsewhere that would fetch all that was ever kept."""
    if store.odb.fs.protocol == "local":
        _copied(store, oid, None)


def _hashes(folder: Path) -> dict[str, str]:
    files = all_files(folder)
    return dict(zip(files, in_threads(_md5_of_file, [*files.values()], "hashing files for DVC"), strict=True))


def _md5_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
