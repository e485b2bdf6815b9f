"""The append-only log of verdicts: which model was promoted, when, and after which.

One JSON object a line. Each entry names the hash of the entry before it, so a line that was changed,
removed or put between others breaks the chain and the log is refused. Entries cut off at the end leave a
valid chain: the newest verdict's record, which names its predecessor, tells.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json, sha256_json
from trainworthy.lifecycle.spec.frozen import Frozen

Action = Literal["promote", "shadow", "reject", "rollback"]


class LogEntry(Frozen):
    """One line of the log.

    `verdict_sha256` of a rollback is that of the verdict it goes back to, `reason` the operator's words; a verdict's
    own reasons are in its record. Lines written before rollbacks had reasons lack that key.
    """

    number: int
    use_case: str
    action: Action
    model_version: str
    verdict_sha256: str
    previous_verdict_sha256: str | None
    previous_entry_sha256: str | None
    written_at: str
    reason: str = ""
    entry_sha256: str


def append(
    path: Path,
    *,
    use_case: str,
    action: Action,
    model_version: str,
    verdict_sha256: str,
    previous_verdict_sha256: str | None,
    reason: str = "",
) -> LogEntry:
    """Add an entry and return it once it is on disk.

    `previous_verdict_sha256` must be the newest entry's (None in an empty log): of two runs that were
    judged against the same state, the second is refused. Raises RecordError, also for a broken chain.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as descriptor:
        entries = _parse(path, _read_all(descriptor))
        newest = entries[-1] if entries else None
        if (newest.verdict_sha256 if newest else None) != previous_verdict_sha256:
            raise RecordError(
                f"the log {path} moved on since this verdict was made",
                value=newest.verdict_sha256 if newest else None,
                fix="run promotion again: it is judged against the newest state",
                code="verdict_log.moved_on",
            )
        values: dict[str, Any] = {
            "number": len(entries) + 1,
            "use_case": use_case,
            "action": action,
            "model_version": model_version,
            "verdict_sha256": verdict_sha256,
            "previous_verdict_sha256": previous_verdict_sha256,
            "previous_entry_sha256": newest.entry_sha256 if newest else None,
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason,
        }
        entry = LogEntry(**values, entry_sha256=sha256_json(values))
        _write(path, descriptor, canonical_json(entry.model_dump()) + b"\n")
    return entry


def read(path: Path) -> tuple[LogEntry, ...]:
    """All entries, oldest first; empty if there is no log. Raises RecordError for a broken chain."""
    if not path.exists():
        return ()
    with _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
        return _parse(path, _read_all(descriptor))


def champion(entries: tuple[LogEntry, ...]) -> LogEntry | None:
    """The entry that made the present champion: the newest promotion or rollback."""
    return next((entry for entry in reversed(entries) if entry.action in ("promote", "rollback")), None)


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        fcntl.flock(descriptor, lock)
        yield descriptor
    finally:
        # Closing gives the lock back.
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _write(path: Path, descriptor: int, line: bytes) -> None:
    """The whole line and the folder's entry on disk, or an error and the log as it was."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError("the line was written in part")
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, size)
        problem, fix = f"the log {path} cannot be written: {error}", "free space on the disk"
        raise RecordError(problem, fix=fix, code="verdict_log.unwritable") from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parse(path: Path, content: bytes) -> tuple[LogEntry, ...]:
    entries: list[LogEntry] = []
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        previous = entries[-1] if entries else None
        entries.append(_entry(path, number, line, previous))
    return tuple(entries)


def _entry(path: Path, number: int, line: bytes, previous: LogEntry | None) -> LogEntry:
    """A line as the successor of the entry before it."""
    if not line.endswith(b"\n"):
        fix = "remove this last line; it was never reported"
        raise _broken(path, number, "was torn while it was written", fix, "torn")
    restore = "restore the log from a backup; the verdicts' records hold the same chain"
    try:
        entry = LogEntry.model_validate(json.loads(line))
    except (ValueError, ValidationError) as error:
        raise _broken(path, number, f"is no entry: {error}", restore, "no_entry") from error
    # Over the keys that the line has: a log stays valid when a later form adds one.
    if sha256_json(entry.model_dump(exclude={"entry_sha256"}, exclude_unset=True)) != entry.entry_sha256:
        raise _broken(path, number, "was changed after it was written", restore, "changed")
    expected = (number, previous and previous.entry_sha256, previous and previous.verdict_sha256)
    if (entry.number, entry.previous_entry_sha256, entry.previous_verdict_sha256) != expected:
        raise _broken(path, number, "does not follow the line before it", restore, "broken_chain")
    return entry


def _broken(path: Path, number: int, problem: str, fix: str, code: str) -> RecordError:
    return RecordError(f"line {number} of the verdict log {path} {problem}", fix=fix, code=f"verdict_log.{code}")
