"""Where things lie below the one state folder (`var/` unless TRAINWORTHY_VAR moves it)."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError

# Below it Dagster's database would be the first that fails, in the middle of a step.
LEAST_FREE_BYTES = 300_000_000
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


class StateFolder:
    """Paths below the state folder. Records hold paths relative to it, so that it can be moved whole."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def folder(self, *parts: str) -> Path:
        """A folder below the root; each part is a plain name, so that no name leads out of it."""
        return self.root.joinpath(*plain_names(*parts))

    def absolute(self, relative: str) -> Path:
        """Path of a file that a record names. Raises SettingsError if it leads out of the state folder."""
        path = (self.root / relative).resolve()
        if not path.is_relative_to(self.root):
            raise SettingsError(
                "a record names a path outside the state folder",
                value=relative,
                fix="restore the record from a backup, or materialize its step again; records are never edited",
                code="state.path",
            )
        return path

    def relative(self, path: Path) -> str:
        """The path as a record holds it."""
        return path.resolve().relative_to(self.root).as_posix()

    def check_writable(self) -> None:
        """Raises SettingsError unless files can be made below the root."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            fix = "make the folder writable, or name another one in TRAINWORTHY_VAR"
            raise SettingsError(
                f"the state folder cannot be written: {error.strerror}", value=str(self.root), fix=fix,
                code="state.unwritable",
            ) from None  # fmt: skip

    def check_room(self) -> None:
        """Raises SettingsError if the disk is nearly full: a step that starts then breaks on the way."""
        free = shutil.disk_usage(self.root).free
        if free < LEAST_FREE_BYTES:
            raise SettingsError(
                f"the disk of the state folder is nearly full: {LEAST_FREE_BYTES / 1e6:.0f} MB have to be free",
                value=f"{free / 1e6:.0f} MB free at {self.root}",
                fix="free space, or move the folder and name it in TRAINWORTHY_VAR; then run again: it resumes",
            )


def plain_names(*parts: str) -> tuple[str, ...]:
    """The parts, each a plain name. Raises SettingsError if one would lead elsewhere."""
    for part in parts:
        if not _SAFE.fullmatch(part):
            fix = "use letters, digits, _ . -"
            raise SettingsError("a name would leave the state folder", value=part, fix=fix, code="state.name")
    return parts


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
