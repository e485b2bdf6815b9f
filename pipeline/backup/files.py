"""Files of a folder: listed without following a link, and copied with their hash; our databases by SQLite itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import BackupError
from trainworthy.pipeline.backup.manifest import MODES, Fingerprint

PIECE_BYTES = 4 * 2**20
# SQLite's own, beside a database: what they hold is in the copy.
_SIDE_SUFFIXES = ("-wal", "-shm", "-journal")
_SHOWN = 5


def listed(root: Path, skip: Callable[[str], bool] = lambda name: False) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All below a folder by relative name, each folder before what is in it. Links are listed and never followed."""
    waiting = [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = f"{prefix}{entry.name}"
                if skip(name):
                    continue
                yield name, entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((f"{name}/", Path(entry.path)))


def refuse_odd(root: Path, what: str, skip: Callable[[str], bool] = lambda name: False) -> None:
    """Raises BackupError for links, pipes and the like below a folder: only files and folders are copied."""
    odd = []
    for name, entry in listed(root, skip):
        if not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)):
            odd.append(f"{name} -> {os.readlink(entry.path)}" if entry.is_symlink() else name)
    if odd:
        fix = "put the files themselves there (a folder on another disk: mount it), or move these away"
        problem = f"{what} has {len(odd)} links or special files, which are never followed"
        raise BackupError(problem, value=odd[:_SHOWN], fix=fix)


def copied(source: Path, target: Path, *, database: bool = False) -> Fingerprint:
    """Copy a file with its time and its mode, byte for byte; what it is now at its target.

    A `database` is copied by SQLite: that gives one moment of it, whoever writes meanwhile, with the same rows in other
    bytes. Raises FileNotFoundError if it is gone.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Never through a link that was put there since the folder was listed.
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BackupError("no plain file", value=str(source), fix="move it away")
        if database:
            _copy_database(source, target)
        else:
            with target.open("xb") as into:
                while piece := file.read(PIECE_BYTES):
                    into.write(piece)
    os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
    target.chmod(status.st_mode & MODES)
    return fingerprint(target)


def fingerprint(path: Path) -> Fingerprint:
    """What a file is now. Raises OSError, also for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Fingerprint(sha256=sha256, bytes=status.st_size, modified_ns=status.st_mtime_ns, mode=status.st_mode & MODES)


def database_of_side_file(name: str) -> str | None:
    """The database that SQLite would keep a file of this name beside; None for a file of another name."""
    return next((name.removesuffix(end) for end in _SIDE_SUFFIXES if name.endswith(end)), None)


def _copy_database(source: Path, target: Path) -> None:
    """One moment of it, whole by SQLite's own check. Raises BackupError if the database is damaged."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=60)) as origin,
            contextlib.closing(sqlite3.connect(target)) as destination,
        ):
            origin.backup(destination)
            # As one file: the copy has no process that writes into a second one beside it.
            destination.execute("PRAGMA journal_mode = DELETE")
            results = [str(row[0]) for row in destination.execute("PRAGMA quick_check(3)")]
    except sqlite3.Error as error:
        results = [str(error)]
    if results != ["ok"]:
        fix = (
            "mend it (sqlite3 FILE .recover), or restore it from an earlier backup; trainworthy doctor looks at it too"
        )
        raise BackupError(f"a database of SQLite is damaged: {'; '.join(results)}", value=str(source), fix=fix)
