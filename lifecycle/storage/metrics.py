"""Metrics of every validated dataset version, one JSON line each, append-only: `<state>/metrics/<use case>.jsonl`.

They outlive the datasets' bytes, so that a new version can be judged by the days of all earlier ones, and so that
alerts can look back. The same content of a dataset by the same column of days is written once. Where state is shared
they are merged with those of other machines before and after a version is judged.
"""

from __future__ import annotations

import fcntl
import os
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.durable.bucket import ObjectChangedError
from trainworthy.lifecycle.storage.shared.store import StateStore
from trainworthy.lifecycle.storage.state import StateFolder, sync_folder


class VersionMetrics(Frozen):
    """Rows and nulls of a dataset version by day of `day_column`.

    `rows` and each of `nulls` have one number for each of `days`, those that have rows, in order; `nulls` holds the
    columns that have nulls, `columns` all that were looked at.
    """

    dataset: str
    version: str
    content_hash: str
    day_column: str
    days: tuple[date, ...]
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    nulls: dict[str, tuple[int, ...]]
    written_at: str = ""

    @property
    def measured(self) -> tuple[str, str, str]:
        """What the figures are of: measured again, they are the same."""
        return self.dataset, self.content_hash, self.day_column


def metrics_path(state: StateFolder, use_case: str) -> Path:
    """Where the metrics of a use case's dataset versions lie."""
    return state.folder("metrics", f"{use_case}.jsonl")


def metrics_of(state: StateFolder, use_case: str) -> tuple[VersionMetrics, ...]:
    """Metrics of each validated version, in the order of validation. Raises RecordError for a line that is no entry.

    A last line that was torn while it was written counts as not written.
    """
    path = metrics_path(state, use_case)
    if not path.is_file():
        return ()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return _parse(path, file.read())


def add_metrics(state: StateFolder, use_case: str, metrics: VersionMetrics) -> None:
    """Append a version's metrics, unless the same were measured before; on disk when it returns."""
    path = metrics_path(state, use_case)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        if any(entry.measured == metrics.measured for entry in _parse(path, content)):
            return
        # What a torn last line left would spoil the next one.
        file.truncate(content.rfind(b"\n") + 1)
        try:
            file.write(canonical_json(metrics.model_dump(mode="json")) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error}", fix="free space on the disk") from error
    sync_folder(path.parent)


def share_metrics(store: StateStore, state: StateFolder, use_case: str) -> None:
    """Have the metrics of all machines here, and those of this one there: in the store's order, then in ours."""
    key, path = f"metrics/{use_case}.jsonl", metrics_path(state, use_case)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        mine = _parse(path, file.read())
        while True:
            stored = store.get(key)
            theirs = () if stored is None else _parse(Path(key), stored.content)
            known = {entry.measured for entry in theirs}
            new = tuple(entry for entry in mine if entry.measured not in known)
            content = b"".join(canonical_json(entry.model_dump(mode="json")) + b"\n" for entry in (*theirs, *new))
            try:
                if stored is None and new:
                    store.put_new(key, content)
                elif stored is not None and new:
                    store.swap(key, content, stored.version)
            except ObjectChangedError:
                continue
            break
        if (*theirs, *new) != mine:
            # In place, since whoever waits for the lock has this file open.
            file.truncate(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _parse(path: Path, content: bytes) -> tuple[VersionMetrics, ...]:
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return tuple(_entry(path, number, line) for number, line in enumerate(lines, start=1))


def _entry(path: Path, number: int, line: bytes) -> VersionMetrics:
    try:
        return VersionMetrics.model_validate_json(line)
    except ValidationError as error:
        fix = "restore the file from a backup, or move it away: it is written anew as versions are validated"
        problem = f"line {number} of {path} holds no metrics: {error.errors()[0]['msg']}"
        raise RecordError(problem, value=line[:60].decode(errors="replace"), fix=fix) from None
