"""Copies in a folder: on a volume, a file server, or a bucket that is mounted.

Between looking at the name and writing it another may write, too: a folder has no compare-and-swap, and these moments
stay open.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import tempfile
from pathlib import Path

from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.storage.checkpoints import checkpoints_in, copy_checkpoint, forget_after
from trainworthy.lifecycle.storage.durable.holder import Name
from trainworthy.lifecycle.storage.state import write_atomic

NAME = ".lease"


class FolderStore:
    """A folder of checkpoints as a CheckpointStore; `add` reads a copy back against its hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        return str(self.folder)

    def names(self) -> list[str]:
        return [path.name for path in checkpoints_in(self.folder)]

    def fetch(self, name: str) -> Path:
        return self.folder / name

    def add(self, path: Path) -> None:
        copy_checkpoint(path, self.folder)

    def forget_after(self, step: int) -> None:
        forget_after(self.folder, step)


class FolderHolder:
    """The name in a file of the folder; a Holder. Half a file is nobody's."""

    def __init__(self, folder: Path) -> None:
        self._path, self._renewals = folder / NAME, itertools.count()

    @property
    def where(self) -> str:
        return str(self._path.parent)

    def read(self) -> Name | None:
        try:
            values = json.loads(self._path.read_bytes())
            return Name(values["owner"], values["host"], values["renewal"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None

    def take(self, owner: str, previous: Name | None) -> None:
        """Write the name, whatever is there."""
        named = {"owner": owner, "host": socket.gethostname(), "renewal": next(self._renewals)}
        write_atomic(self._path, canonical_json(named))

    def renew(self, owner: str) -> Name | None:
        current = self.read()
        if current is not None and current.owner != owner:
            return current
        self.take(owner, current)
        return None

    def release(self, owner: str) -> None:
        current = self.read()
        if current is not None and current.owner == owner:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()


def takes_files(folder: Path) -> None:
    """Raises OSError unless files can be made in the folder, which is never made: a volume may not be mounted."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder: mount it, or name another one in TRAINWORTHY_DURABLE")
    with tempfile.TemporaryFile(dir=folder):
        pass
