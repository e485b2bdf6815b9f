"""DVC's cache and remote as a place to keep and read the files of a dataset version: the only importer of dvc.

The remote is the one that the project's `.dvc/config` names, so that people share bytes, else `dvc/remote` of the state
folder. Objects are read through DVC's API, without a checkout and in pieces; each is compared with its md5 on the way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import all_files
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.resources.dvc_work import say

OWN_REMOTE = "local"
# The code of errors that say that the remote did not take part.
REFUSED = "dvc_remote"
LIST_OF_FILES = "the list of its files"
# Files are read in pieces of this size: one may be larger than the memory.
PIECE_BYTES = 8 * 2**20
# A read that went wrong once is no damage: shares and object storage give wrong or short answers now and then.
READS = 2
# Of a large file, so many parts of 50 MB are sent at once, each held twice; DVC's default takes 0.8 GB.
PARTS_AT_ONCE = 2
# Settings of a remote that are addresses, and no secrets.
ADDRESSES = ("url", "endpointurl")


@dataclass(frozen=True)
class Remote:
    """The remote called `name`. `sections` are the settings of all: one may be declared below another."""

    name: str
    sections: Mapping[str, Mapping[str, Any]]
    own: bool = False

    @property
    def url(self) -> str:
        """The address as it is declared."""
        return str(self.sections[self.name]["url"])

    def shown(self, text: str) -> str:
        """The text without credentials in addresses, and without any value of the settings but addresses."""
        values = {value for section in self.sections.values() for key, value in section.items() if key not in ADDRESSES}
        secrets = sorted((value for value in values if isinstance(value, str) and value), key=len, reverse=True)
        for secret in secrets:
            text = text.replace(secret, "***")
        return without_credentials(text)

    def refused(self, error: Exception) -> DatasetError:
        """What the remote's storage said."""
        message = str(error).strip() or type(error).__name__
        missing = "is supported, but requires" in message
        fix = (
            "install the extra of that storage, for S3: pip install -e '.[s3]'"
            if missing
            else "look at the address, the rights and the credentials there (dvc remote list); without a remote in "
            ".dvc/config the state folder keeps the bytes"
        )
        problem = f"DVC's remote did not take part: {self.shown(message)}"
        return DatasetError(problem, value=without_credentials(self.url), fix=fix, code=REFUSED)

    @contextlib.contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Any error inside is the remote's: each storage has errors of its own, which share no class."""
        try:
            yield
        except Exception as error:
            # Not from the storage's own error, which may hold secrets: tracebacks would show it.
            raise self.refused(error) from None


@dataclass(frozen=True)
class _Store:
    """One of DVC's object stores: the cache, or else `remote`."""

    odb: Any
    remote: Remote | None = None

    @property
    def own(self) -> bool:
        """Whether it lies below the state folder, so that damaged objects may be removed from it."""
        return self.remote is None or self.remote.own

    def translating_errors(self) -> contextlib.AbstractContextManager[None]:
        """As `Remote.asked`; errors of the cache are local ones and pass through."""
        return contextlib.nullcontext() if self.remote is None else self.remote.translating_errors()

    def add(self, path: str, oid: str) -> None:
        """Put a file there, if the object is missing."""
        from dvc.fs import localfs

        with self.translating_errors():
            # Never verified by DVC, whatever the remote's settings say: it removes what it finds damaged.
            self.odb.add(path, localfs, oid, verify=False, jobs=PARTS_AT_ONCE)


@dataclass(frozen=True)
class DvcObjects:
    """The cache below `folder`, and the remote of `project` or below `folder`. A version's name is `<md5>.dir`.

    Nothing is ever removed from the project's remote: other people and other projects read there.
    """

    folder: Path
    project: Path

    def read(self, dvc_hash: str, folder: Path) -> list[str]:
        """Copy a version's files to `folder`; names of those that are missing or changed in both places, [] if none.

        All files that are sound are copied. If the list of files itself is lost, that is the one name. The remote is
        asked only for what the cache lacks; one that does not take part is told, and lacks everything.
        """
        with self._cache() as cache:
            files = _tree(cache, dvc_hash)
            lost = _not_copied(cache, files or {}, folder)
            if files is not None and not lost:
                return []
            try:
                with self._remote() as remote:
                    if files is None:
                        files = _tree(remote, dvc_hash)
                        lost = _not_copied(cache, files or {}, folder)
                    lost = _not_copied(remote, lost, folder)
            except DatasetError as error:
                tell_refused(error)
        return [LIST_OF_FILES] if files is None else [*lost]

    def keep(self, folder: Path) -> str:
        """Put a folder's files into the cache, with what is missing or damaged there; its DVC hash."""
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.tree import Tree

        tree, paths, hashes = Tree(), all_files(folder), _hashes(folder)
        for name, md5 in hashes.items():
            tree.add(tuple(name.split("/")), None, HashInfo("md5", md5))
        tree.digest()
        dvc_hash = str(tree.oid)
        with self._cache() as cache:
            for name, md5 in hashes.items():
                _blocked(cache, md5)
                cache.add(str(paths[name]), md5)
            # The list of files goes last: whoever finds it finds the files.
            _blocked(cache, dvc_hash)
            cache.odb.add(tree.path, tree.fs, dvc_hash, verify=False)
        return dvc_hash

    def push(self, dvc_hash: str) -> None:
        """Put a version that the cache has into the remote, too.

        Raises DatasetError with the code REFUSED if the remote does not take part, or has damaged objects in the way.
        """
        with self._cache() as cache, self._remote() as remote:
            oids = [*(_tree(cache, dvc_hash) or {}).values()]
            blocked = [oid for oid in oids if not _added(cache, remote, oid)]
            if blocked or not _added(cache, remote, dvc_hash):
                raise DatasetError(
                    "DVC's remote has damaged objects in the way",
                    value=(blocked or [dvc_hash])[:5],
                    fix="remove them there: nothing else removes what other people may read",
                    code=REFUSED,
                )

    @property
    def has_own_remote(self) -> bool:
        """Whether the remote is the state folder's own. Raises DatasetError as `project_remote`."""
        return project_remote(self.project) is None

    def changed_files(self, dvc_hash: str, folder: Path) -> list[str]:
        """Names of files in `folder` whose bytes differ from the version's; [] if DVC has lost the version's list."""
        with self._cache() as cache:
            published = _tree(cache, dvc_hash)
        if published is None:
            try:
                with self._remote() as remote:
                    published = _tree(remote, dvc_hash)
            except DatasetError as error:
                tell_refused(error)
        if published is None:
            return []
        present = _hashes(folder)
        return sorted(name for name in published.keys() | present.keys() if published.get(name) != present.get(name))

    @contextlib.contextmanager
    def _cache(self) -> Iterator[_Store]:
        with self._repo({}) as repo:
            yield _Store(repo.cache.local)

    @contextlib.contextmanager
    def _remote(self) -> Iterator[_Store]:
        """Raises DatasetError with the code REFUSED if the remote does not take part."""
        own = Remote(OWN_REMOTE, {OWN_REMOTE: {"url": str(self.folder.resolve() / "remote")}}, own=True)
        remote = project_remote(self.project) or own
        with contextlib.ExitStack() as stack:
            with remote.translating_errors():
                repo = stack.enter_context(self._repo(remote.sections))
                odb = repo.cloud.get_remote_odb(remote.name)
            yield _Store(odb, remote)

    def _repo(self, remotes: Mapping[str, Mapping[str, Any]]) -> Any:
        """A repository of our own: opening the project's would write into the user's tree."""
        from dvc.repo import Repo

        base = self.folder.resolve()
        (base / "home" / ".dvc").mkdir(parents=True, exist_ok=True)
        config = {
            "core": {"analytics": False, "no_scm": True, "site_cache_dir": str(base / "site")},
            "cache": {"dir": str(base / "cache")},
            "remote": {name: dict(section) for name, section in remotes.items()},
        }
        return Repo(str(base / "home"), config=config)


def tell_refused(error: DatasetError) -> None:
    """Tell that the remote did not take part, for whoever can do without it; any other error is raised."""
    if error.code != REFUSED:
        raise error
    say(f"warning: {error.problem} ({error.value}); going on without it")


def project_remote(project: Path) -> Remote | None:
    """The default remote of the project's DVC settings, its address absolute; None if there is none.

    Also None for var/dvc/remote of the project, which is the state folder's own wherever that lies. Raises DatasetError
    for settings that DVC cannot read, or a default remote that they do not have.
    """
    from dvc.config import Config, ConfigError

    path = project.resolve() / ".dvc" / "config"
    if not path.is_file():
        return None
    fix = "correct it, or look with: dvc remote list; dvc remote default"
    try:
        settings = Config(str(path.parent))
    except ConfigError as error:
        problem = f"DVC's settings cannot be read: {without_credentials(str(error))}"
        raise DatasetError(problem, value=str(path), fix=fix, code=REFUSED) from None
    name = settings["core"].get("remote")
    if not name:
        return None
    if name not in settings["remote"]:
        raise DatasetError("DVC's default remote is not declared", value=name, fix=fix, code=REFUSED)
    remote = Remote(name, settings["remote"])
    own = project.resolve() / "var" / "dvc" / "remote"
    return None if os.path.normpath(remote.url) == str(own) else remote


def write_pointer(project: Path, name: str, revision: str, dvc_hash: str) -> Path:
    """Write data/<name>@<revision>.dvc, by which `dvc pull`, `list` and `get` know the version's files; its path."""
    path = project / "data" / f"{name}@{revision}.dvc"
    path.write_text(f"outs:\n- md5: {dvc_hash}\n  hash: md5\n  path: {name}@{revision}\n", encoding="utf-8")
    return path


def _tree(store: _Store, dvc_hash: str) -> dict[str, str] | None:
    """Relative name and md5 of each file of a version; None if the store has no sound list."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    if not _copied(store, dvc_hash, None):
        return None
    with store.translating_errors():
        tree = Tree.load(store.odb, HashInfo("md5", dvc_hash))
    return {"/".join(parts): str(info.value) for parts, _, info in tree if info is not None}


def _not_copied(store: _Store, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Copy what the store has of these files (name and md5) to `folder`; the others."""
    lost = {}
    for name, md5 in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _copied(store, md5, path):
            path.unlink(missing_ok=True)
            lost[name] = md5
    return lost


def _copied(store: _Store, oid: str, path: Path | None) -> bool:
    """Copy an object to `path`, if one is given; False if the store lacks it or has it with other bytes.

    A damaged object of an own store is removed. DVC doesn't look again at an object once its file is read-only, so it
    would go on using the wrong bytes, and never replace them.
    """
    source = store.odb.oid_to_path(oid)
    with store.translating_errors():
        exists = store.odb.fs.exists(source)
    if not exists:
        return False
    if any(_read(store, source, path) == oid.removesuffix(".dir") for _ in range(READS)):
        return True
    if store.own:
        store.odb.fs.remove(source)
    done = "was removed" if store.own else "is not used; remove it there, or restore it from a backup"
    say(f"a DVC object is damaged and {done}: {store.remote.shown(source) if store.remote else source}")
    return False


def _read(store: _Store, source: str, path: Path | None) -> str:
    """The md5 of an object as it is read now, copied to `path` if one is given."""
    digest = hashlib.md5(usedforsecurity=False)
    with contextlib.ExitStack() as stack:
        with store.translating_errors():
            file = stack.enter_context(store.odb.fs.open(source, "rb"))
        copy = None if path is None else stack.enter_context(path.open("wb"))
        while True:
            with store.translating_errors():
                piece = file.read(PIECE_BYTES)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)
            if copy is not None:
                copy.write(piece)


def _blocked(store: _Store, oid: str) -> bool:
    """Whether a damaged object is in the way, on a disk: elsewhere that would fetch all that was ever kept.

    Never in an own store, where it is removed.
    """
    if store.odb.fs.protocol != "local":
        return False
    with store.translating_errors():
        exists = store.odb.exists(oid)
    return exists and not _copied(store, oid, None) and not store.own


def _added(cache: _Store, remote: _Store, oid: str) -> bool:
    """Put an object of the cache into the remote; False if a damaged one is in the way there."""
    if _blocked(remote, oid):
        return False
    remote.add(cache.odb.oid_to_path(oid), oid)
    return True


def _hashes(folder: Path) -> dict[str, str]:
    files = all_files(folder)
    return dict(zip(files, in_threads(_md5_of_file, [*files.values()], "hashing files for DVC"), strict=True))


def _md5_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
