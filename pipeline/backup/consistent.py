"""Does a state folder hold together: each pointer its record, each verdict its record, each champion its model?"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.storage.shared.folder import FolderState

_POINTERS = ("runs", "newest", "identity")


def problems(state: Path, *, own_registry: bool) -> list[str]:
    """What is named in it and not there, in words; [] if it holds together. Nothing is written.

    `own_registry` is false where a server of MLflow has the models.
    """
    return [*_records(state), *_verdicts(state, state / "mlflow" / "mlflow.db" if own_registry else None)]


def _records(state: Path) -> Iterator[str]:
    for use_case in _folders(state / "records"):
        objects = {path.stem: path for path in (use_case / "objects").glob("*.json")}
        changed = {sha256 for sha256, path in objects.items() if sha256_file(path) != sha256}
        yield from (f"{use_case.name}: the record {sha256[:12]} was changed" for sha256 in sorted(changed))
        for kind in _POINTERS:
            # Without what a file browser leaves, and the name that a pointer has while it is written.
            for pointer in sorted((use_case / kind).glob("*/[!.]*")):
                if (sha256 := pointer.read_text(encoding="utf-8")) not in objects:
                    named = pointer.relative_to(state).as_posix()
                    yield f"{named} names the record {sha256[:12]}, which is not there"


def _verdicts(state: Path, registry: Path | None) -> Iterator[str]:
    for path in sorted((state / "verdicts").glob("*.jsonl")):
        try:
            entries = log.read(log.VerdictLog(FolderState(state), path.stem))
        except TrainworthyError as error:
            yield error.problem
            continue
        for entry in entries:
            if not (state / "records" / path.stem / "objects" / f"{entry.verdict_sha256}.json").is_file():
                yield f"the verdict log of {path.stem} names a verdict that is not there: {entry.verdict_sha256[:12]}"
        champion = log.champion(entries)
        if champion is not None and registry is not None and not _is_registered(registry, path.stem, champion):
            yield f"version {champion.model_version} of {path.stem} is champion, and MLflow does not have it"


def _is_registered(database: Path, name: str, entry: log.LogEntry) -> bool:
    if not database.is_file():
        return False
    query = "SELECT count(*) FROM model_versions WHERE name = ? AND version = ?"
    with contextlib.closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        return bool(connection.execute(query, (name, int(entry.model_version))).fetchone()[0])


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
