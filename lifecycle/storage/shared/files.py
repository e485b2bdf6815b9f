"""Files that records name, for machines that do not have them: kept by the hash of their bytes, verified when fetched.

`files/<sha256>` are bytes, and `folders/<sha256>.json` names those of an artifact or a checkpoint, which a record has
by the hash of its manifest. Of a dataset nothing is kept: its bytes are DVC's.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.protocol.records import DatasetBody, StoredFile
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.shared.store import StateStore, put_same
from trainworthy.lifecycle.storage.state import StateFolder, sync_folder

# Fields of records that name a folder; with `_sha256` the hash of its manifest.
_FOLDERS = ("checkpoint", "artifact")


def keep_files(store: StateStore, state: StateFolder, body: Frozen) -> None:
    """Have all that a record's body names in the store, before the record is. Raises StateError for changed bytes."""
    for file in stored_files(body):
        _keep(store, state.absolute(file.path), file.sha256)
    for path, sha256 in _folders(state, body):
        if store.get(key := f"folders/{sha256}.json") is not None:
            continue
        files = {
            member.relative_to(path).as_posix(): sha256_file(member)
            for member in sorted(path.rglob("*"))
            if member.is_file()
        }
        for name, file_sha256 in files.items():
            _keep(store, path / name, file_sha256)
        put_same(store, key, canonical_json({"files": files}))


def fetch_files(store: StateStore, state: StateFolder, body: Frozen) -> None:
    """Have all of it here that the store has. What it has not, whoever needs it tells; so with bytes that lie here."""
    for file in stored_files(body):
        path = state.absolute(file.path)
        if not path.exists() and store.has(f"files/{file.sha256}"):
            with _temporary(path) as work:
                _fetch(store, work / path.name, file.sha256)
                os.replace(work / path.name, path)
            sync_folder(path.parent)
    for path, sha256 in _folders(state, body):
        if not path.exists() and (index := store.get(f"folders/{sha256}.json")) is not None:
            with _temporary(path) as work:
                for name, file_sha256 in _index(store, sha256, index.content).items():
                    _fetch(store, work / path.name / name, file_sha256)
                if path.exists():
                    continue
                os.rename(work / path.name, path)
            sync_folder(path.parent)


def stored_files(value: object) -> Iterator[StoredFile]:
    """The files that a record names one by one, but for a dataset's."""
    if isinstance(value, StoredFile):
        yield value
    elif isinstance(value, Frozen) and not isinstance(value, DatasetBody):
        for _, part in value:
            yield from stored_files(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from stored_files(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from stored_files(part)


def _folders(state: StateFolder, body: Frozen) -> Iterator[tuple[Path, str]]:
    for name in _FOLDERS:
        path, sha256 = getattr(body, name, None), getattr(body, f"{name}_sha256", None)
        if path is not None and sha256 is not None:
            yield state.absolute(path), sha256


def _keep(store: StateStore, path: Path, sha256: str) -> None:
    if store.has(key := f"files/{sha256}"):
        return
    if not path.is_file() or sha256_file(path) != sha256:
        fix = "run again: what cannot be trusted is made anew"
        raise StateError("a file is no longer what was measured", value=str(path), fix=fix)
    store.send(key, path)


def _fetch(store: StateStore, path: Path, sha256: str) -> None:
    store.receive(f"files/{sha256}", path)
    if (actual := sha256_file(path)) != sha256:
        fix = f"remove files/{sha256} there, and run its step again where the file is"
        raise StateError("a file of the shared state has other bytes than its name says", value=actual, fix=fix)


def _index(store: StateStore, sha256: str, content: bytes) -> dict[str, str]:
    """Names below the folder and the hash of each. Whoever may write to the store may have written them."""
    try:
        files = dict(json.loads(content)["files"])
        plain = all(is_plain(name) and isinstance(of, str) and of.isalnum() for name, of in files.items())
    except (ValueError, KeyError, TypeError):
        files, plain = {}, False
    if not plain:
        fix = "remove it there, and run its step again where the files are"
        raise StateError("what lies there was not written by Trainworthy", value=f"folders/{sha256}.json", fix=fix)
    return files


def is_plain(name: str) -> bool:
    """True of a name that leads to a file below a folder."""
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return inside and "\\" not in name and "\0" not in name


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A folder on the disk of what is fetched, from which it gets its name whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as folder:
        yield Path(folder)
