"""DVC's cache and remote as a place to keep and read the files of a dataset version: the only importer of dvc.

Objects are read through DVC's API, without a checkout; every one is compared with its md5 on the way.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.files.content import all_files
from trainworthy.lifecycle.files.tree import in_threads

REMOTE = "local"
LIST_OF_FILES = "the list of its files"


@dataclass(frozen=True)
class DvcObjects:
    """The cache and the remote below `folder`. A version is named by its DVC hash, `<md5>.dir`."""

    folder: Path

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
                data = _sound_object(stores, md5)
                if data is None:
                    lost.append(name)
                    continue
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        return lost

    def keep(self, folder: Path) -> str:
        """Put a folder's files into both places, mending what is missing or changed there; its DVC hash."""
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
                    _sound_object([store], md5)
                    store.add(str(paths[name]), localfs, md5)
                # The list of files goes last: whoever finds it finds the files.
                _sound_object([store], dvc_hash)
                store.add(tree.path, tree.fs, dvc_hash)
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
    def _stores(self) -> Iterator[list[Any]]:
        """DVC's object stores, nearest first: the cache, then the remote."""
        from dvc.repo import Repo

        base = self.folder.resolve()
        # A repository of our own: opening the project's would write into the user's tree.
        (base / "home" / ".dvc").mkdir(parents=True, exist_ok=True)
        config = {
            "core": {"analytics": False, "no_scm": True, "remote": REMOTE, "site_cache_dir": str(base / "site")},
            "cache": {"dir": str(base / "cache")},
            "remote": {REMOTE: {"url": str(base / "remote")}},
        }
        with Repo(str(base / "home"), config=config) as repo:
            yield [repo.cache.local, repo.cloud.get_remote_odb(REMOTE)]


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
        print(f"a DVC object is damaged and was removed: {path}", file=sys.stderr, flush=True)
        store.fs.remove(path)
    return None


def _hashes(folder: Path) -> dict[str, str]:
    files = all_files(folder)
    return dict(zip(files, in_threads(_md5_of_file, [*files.values()], "hashing files for DVC"), strict=True))


def _md5_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
