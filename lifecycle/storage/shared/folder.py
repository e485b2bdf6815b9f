"""Shared state in a folder: the state folder itself, or one that several machines see.

A lock of the file system (flock) is around each write, for as long as it takes. A lease is such a lock for as long as
it is held: the kernel gives back that of a process that ended, so nobody has to wait whether it lives. A file server
that forgets a lock lets a second one in, with a higher token: by it the first is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.storage.durable.bucket import ObjectChangedError
from trainworthy.lifecycle.storage.durable.head import LeaseHead
from trainworthy.lifecycle.storage.shared.store import HeldLease, Lost, StoredObject
from trainworthy.lifecycle.storage.state import StateFolder, sync_folder, write_atomic

LOCK = ".state.lock"
_NO_LOCKS = "its file system keeps no locks (flock), by which one process alone writes: use another one, or a bucket"


class FolderState:
    """A folder as a StateStore: a key is the path of its file below it."""

    def __init__(self, root: Path) -> None:
        self._folder = StateFolder(root)

    @property
    def where(self) -> str:
        return str(self._folder.root)

    def get(self, key: str) -> StoredObject | None:
        with self._as_state_error(key):
            return self._stored(self._path(key))

    def put_new(self, key: str, content: bytes) -> None:
        path = self._path(key)
        with self._as_state_error(key), self._alone():
            if path.exists():
                raise ObjectChangedError(str(path))
            write_atomic(path, content)

    def swap(self, key: str, content: bytes, version: str, held: HeldLease | None = None) -> None:
        path = self._path(key)
        with self._as_state_error(key), self._alone():
            if held is not None:
                # No token is given meanwhile: that takes the same lock.
                held.check()
            stored = self._stored(path)
            if stored is None or stored.version != version:
                raise ObjectChangedError(str(path))
            write_atomic(path, content)

    def names(self, below: str) -> list[str]:
        root, modified = self._folder.root, dict[str, int]()
        with self._as_state_error(below):
            for path in self._path(below).rglob("[!.]*"):
                # What was removed since it was listed is left out.
                with suppress(FileNotFoundError):
                    status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        modified[path.relative_to(root).as_posix()] = status.st_mtime_ns
        return _newest_first(modified)

    def children(self, below: str) -> list[str]:
        # Each write renames a file in its folder, which is the folder's time: not every file is asked for its own.
        modified = dict[str, int]()
        with self._as_state_error(below), suppress(FileNotFoundError):
            for path in self._path(below).iterdir():
                if not path.name.startswith("."):
                    with suppress(FileNotFoundError):
                        modified[path.name] = path.stat().st_mtime_ns
        return _newest_first(modified)

    def has(self, key: str) -> bool:
        with self._as_state_error(key):
            return self._path(key).is_file()

    def send(self, key: str, path: Path) -> None:
        target = self._path(key)
        with self._as_state_error(key):
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".sending-") as work:
                shutil.copyfile(path, copy := Path(work, target.name))
                with copy.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(copy, target)
            sync_folder(target.parent)

    def receive(self, key: str, path: Path) -> None:
        with self._as_state_error(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path(key), path)

    @contextmanager
    def lease(
        self,
        name: str,
        known: int,
        say_waiting: Callable[[], None],
        lost: Lost,
        fence: Callable[[HeldLease], None] | None = None,
    ) -> Iterator[HeldLease]:
        path = self._path(f"{name}.lock")
        with self._as_state_error(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        with file:
            with self._as_state_error(name):
                if not _locked(file, wait=False):
                    say_waiting()
                    _locked(file, wait=True)
                token = self._next_token(f"{name}.lease", known)

            def check() -> None:
                head = self._head(f"{name}.lease")
                if head.token != token:
                    raise lost(head.host)

            # Whoever held it before has ended, as its lock says, or is refused by its token.
            yield HeldLease(token, took_over=False, check=check)

    def check(self) -> None:
        with self._as_state_error(""):
            if not self._folder.root.is_dir():
                raise FileNotFoundError(f"{self.where} is no folder: mount it, or name another one")
            for folder in (self._folder.root, *map(self._path, ("records", "verdicts"))):
                if folder.is_dir():
                    with tempfile.TemporaryFile(dir=folder):
                        pass
            with self._alone(), (self._folder.root / LOCK).open("w") as file:
                kept = not _locked(file, wait=False)
        if not kept:
            raise StateError("the shared state cannot be written", value=self.where, fix=_NO_LOCKS)

    def _next_token(self, key: str, known: int) -> int:
        with self._alone():
            head = self._head(key)
            taken = LeaseHead(token=max(head.token, known) + 1, host=socket.gethostname(), renewal=head.renewal + 1)
            write_atomic(self._path(key), taken.model_dump_json().encode())
        return taken.token

    def _head(self, key: str) -> LeaseHead:
        path = self._path(key)
        with self._as_state_error(key):
            stored = self._stored(path)
        try:
            return LeaseHead() if stored is None else LeaseHead.model_validate_json(stored.content)
        except ValidationError:
            fix = "remove the file: the next lease goes on from the highest token of what it guards"
            raise StateError("a lease is no longer what was written", value=str(path), fix=fix) from None

    def _path(self, key: str) -> Path:
        return self._folder.folder(*key.split("/"))

    def _stored(self, path: Path) -> StoredObject | None:
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredObject(content, hashlib.sha256(content).hexdigest())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._folder.root.mkdir(parents=True, exist_ok=True)
        with (self._folder.root / LOCK).open("w") as file:
            _locked(file, wait=True)
            yield

    @contextmanager
    def _as_state_error(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = "make the folder writable and free space on its disk, or name another one; then run again"
            value = os.path.join(self.where, key) if key else self.where
            raise StateError(
                f"the shared state cannot be used: {error.strerror or error}", value=value, fix=fix
            ) from error


def _newest_first(times: Mapping[str, int]) -> list[str]:
    return sorted(times, key=lambda name: (-times[name], name))


def _locked(file: IO[str], *, wait: bool) -> bool:
    """True once the lock is this process's; at once false without `wait` if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
