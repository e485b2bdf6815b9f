"""Take a backup: whole under its name, or not at all.

It is consistent by its order. A run writes what is named before what names it: files before the record of them, the
record before its pointer and the verdict log, a model's files before its version, the version before the log. A
backup goes the other way, from what names to what is named, and lists each part when its turn comes. Nothing named is
ever changed or removed, so whatever a copied pointer names is there when its own turn comes, also in the middle of a
run:

1. Dagster's runs, which name records (of a run in the middle its restored copy says "running": doctor --fix ends it)
2. verdict logs, then pointers to records, then records
3. MLflow's database, which the logs name versions of. Its alias may be newer than the log: doctor --fix mends that,
   and the other way round nothing would
4. all other files: models, snapshots, contracts, reports, DVC's objects
5. attempts, the last: no start of a worker that a record speaks of may be missing in what was spent

Not in it is what is made again by itself: DVC's cache (its remote has the same objects), its workspaces and its lock.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.progress import Progress, never_silent, say
from trainworthy.lifecycle.provenance import commit_of, installed_version
from trainworthy.pipeline.backup.consistent import problems
from trainworthy.pipeline.backup.files import copied, database_of_side_file, fingerprint, listed, refuse_odd
from trainworthy.pipeline.backup.manifest import (
    ARTIFACTS,
    ATTEMPTS,
    DAGSTER,
    DATABASES,
    STATE,
    Fingerprint,
    Manifest,
    write_manifest,
)
from trainworthy.pipeline.backup.places import Places, has_own_registry
from trainworthy.pipeline.backup.postgres import Database, dump
from trainworthy.pipeline.backup.signals import undisturbed
from trainworthy.pipeline.doctor.runs import instance_of
from trainworthy.resources.attempt_table import FILE as ATTEMPTS_FILE
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.settings import Settings
from trainworthy.resources.stuck_runs import RUNNING

_SHOWN = 5
# Made again where they are needed.
_MADE_AGAIN = ("dvc/cache", "dvc/site", "dvc/work", "dvc/home", "dvc/lock")
_TURNS = 7
_MLFLOW_TURN, _FILES_TURN, _ATTEMPTS_TURN = 4, 5, 6
_WAITING = [dg.DagsterRunStatus.QUEUED, *RUNNING]


def take_backup(settings: Settings, where: Places, target: Path, *, despite_runs: bool = False) -> tuple[Manifest, str]:
    """Write a backup to the folder `target`, which is not there or empty; its manifest and the manifest's hash.

    Raises BackupError if runs are in progress and `despite_runs` is false, for a target that is no place for it, for
    links and special files, and if what was copied does not hold together; then `target` is as it was.
    """
    target = target.absolute()
    running = in_progress(settings, where)
    if running and not despite_runs:
        fix = (
            "wait for their end (those whose process is gone: trainworthy doctor --fix), or take it now with "
            "--running: their work is then in it as far as it came"
        )
        raise BackupError("runs are in progress", value=running[:_SHOWN], fix=fix, code="backup.running")
    refuse_place(target, where)
    refuse_odd(where.state, "the state folder", _skipped(where))
    if where.artifacts:
        refuse_odd(where.artifacts, "the folder of MLflow's artifacts")
    refuse_full(target, where)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.unfinished-"))
    try:
        with never_silent("backup"):
            sha256 = _write(settings, where, work, running)
        with undisturbed():
            if target.exists():
                target.rmdir()
            work.rename(target)
            # The names of all of it, on the disk; the files themselves are synced before.
            os.sync()
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return sha256


def in_progress(settings: Settings, where: Places) -> list[str]:
    """Runs of Dagster that wait or work, and attempts without an end of other runs."""
    descriptions = {}
    if "dagster" not in where.without:
        with instance_of(settings) as instance:
            runs = instance.get_run_records(dg.RunsFilter(statuses=_WAITING)) if instance else []
            for record in runs:
                run = record.dagster_run
                descriptions[run.run_id] = f"{run.job_name} {run.run_id[:8]} ({run.status.value})"
    for row in attempt_table(settings).rows(only_open=True):
        charged = row.started.charged_to
        description = (
            f"a worker of {charged.use_case} {charged.step} on {row.started.process.host} ({charged.run_id[:8]})"
        )
        descriptions.setdefault(charged.run_id, description)
    return list(descriptions.values())


def refuse_place(target: Path, where: Places) -> None:
    """Raises BackupError unless the target is a new or empty folder outside of what is backed up."""
    if not where.state.is_dir():
        fix = "run it in the project, or name its state folder in TRAINWORTHY_VAR"
        raise BackupError("there is no state folder to back up", value=str(where.state), fix=fix)
    real = target.parent.resolve() / target.name
    for folder in (where.state, *([where.artifacts] if where.artifacts else [])):
        if real.is_relative_to(folder.resolve()):
            fix = "name a folder elsewhere, best on another disk"
            raise BackupError("the backup would lie within what it holds", value=str(target), fix=fix)
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        fix = "name a new folder: backups are never written over"
        raise BackupError("the place of the backup is taken", value=str(target), fix=fix, code="backup.taken")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        fix = "make it, mount it, or name another place"
        raise BackupError("the folder above the backup cannot be written", value=str(target.parent), fix=fix)


def refuse_full(target: Path, where: Places) -> None:
    """Raises BackupError if the disk has less room than the files have bytes. What databases dump comes on top."""
    needed = sum(
        status.st_size
        for root, skip in _roots(where)
        for _, entry in listed(root, skip)
        if entry.is_file(follow_symlinks=False) and (status := _stat(entry)) is not None
    )
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        problem = f"the backup needs {needed / 1e9:.1f} GB, and its disk has {free / 1e9:.1f} GB"
        raise BackupError(problem, value=str(target.parent), fix="free space, or name a folder on another disk")


def _write(settings: Settings, where: Places, work: Path, running: list[str]) -> tuple[Manifest, str]:
    files, gone, dumps = dict[str, Fingerprint](), list[str](), dict[str, tuple[str, ...]]()
    taken = [name for name, _ in _files(where.state, _skipped(where), _is_database)]
    progress = Progress("backup", len(taken) + len(where.databases))
    try:
        for turn in range(_TURNS):
            for database in where.databases:
                if _turn_of_database(database) == turn:
                    name = f"{DATABASES}/{'-'.join(database.holds)}.dump"
                    say(f"backup: dumping {', '.join(database.holds)} from {database.shown}")
                    dump(database, work / name)
                    files[name], dumps[name] = fingerprint(work / name), database.holds
                    progress.advance()
            for name, path in _files(where.state, _only(turn, _skipped(where)), _is_database):
                # A file directly in a folder of two turns: in the last of them, and not once more.
                if _turns_below(name.split("/"))[-1] == turn:
                    _copy(path, f"{STATE}/{name}", work, files, gone, database=_is_database(name))
                    progress.advance()
            if turn == _FILES_TURN and where.artifacts:
                say(f"backup: copying MLflow's artifacts from {where.artifacts}")
                for name, path in _files(where.artifacts, _nothing, _nothing):
                    _copy(path, f"{ARTIFACTS}/{name}", work, files, gone, database=False)
    finally:
        progress.close()
    also = [description for description in in_progress(settings, where) if description not in running]
    faults = problems(work / STATE, own_registry=has_own_registry(where.without))
    if faults:
        fix = (
            "trainworthy doctor tells what is wrong with the state folder; to keep it as it is, copy it by hand. With "
            "runs in progress: wait for their end"
        )
        raise BackupError("what was copied does not hold together", value=faults[:_SHOWN], fix=fix)
    # Of the commit alone: what differs from it would be looked for in all of a project, an environment in it too.
    commit = commit_of(settings.project)
    manifest = Manifest(
        product=installed_version() or f"a checkout at {commit or 'no commit'}",
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state_folder=str(where.state),
        commit=commit,
        files=files,
        folders=_folder_times(where),
        dumps=dumps,
        running=(*running, *also),
        gone=tuple(gone),
        without=where.without,
    )
    os.sync()
    return manifest, write_manifest(work, manifest)


def _copy(path: Path, name: str, work: Path, files: dict[str, Fingerprint], gone: list[str], *, database: bool) -> None:
    try:
        files[name] = copied(path, work / name, database=database)
    except FileNotFoundError:
        # Of a run in progress: an old checkpoint, or a name that a file had until it was whole.
        gone.append(name)


def _files(root: Path, skip: Callable[[str], bool], is_database: Callable[[str], bool]) -> Iterator[tuple[str, Path]]:
    """Files to copy; those that SQLite keeps beside a database are in the database's copy."""
    for name, entry in listed(root, skip):
        database = database_of_side_file(name)
        if entry.is_file(follow_symlinks=False) and not (database and is_database(database)):
            yield name, Path(entry.path)


def _is_database(name: str) -> bool:
    """True for what Trainworthy, MLflow and Dagster themselves write by SQLite in the state folder.

    Any other file is a user's or goes by the hash of its bytes, which SQLite would change in its copy.
    """
    if name in (ATTEMPTS_FILE, "mlflow/mlflow.db"):
        return True
    return name.startswith("dagster/") and name.endswith(".db")


def _nothing(name: str) -> bool:
    return False


def _roots(where: Places) -> Iterator[tuple[Path, Callable[[str], bool]]]:
    yield where.state, _skipped(where)
    if where.artifacts:
        yield where.artifacts, _nothing


def _folder_times(where: Places) -> dict[str, int]:
    """When the folders were last changed."""
    return {
        f"{below}/{name}": status.st_mtime_ns
        for below, (root, skip) in zip((STATE, ARTIFACTS), _roots(where), strict=False)
        for name, entry in listed(root, skip)
        if entry.is_dir(follow_symlinks=False) and (status := _stat(entry)) is not None
    }


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what went since it was listed: a run in progress removes old checkpoints."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _skipped(where: Places) -> Callable[[str], bool]:
    """True for what is made again by itself, and for what the user left out."""
    left = [*_MADE_AGAIN, *(name for name in where.without)]
    return lambda name: any(name == excluded or name.startswith(f"{excluded}/") for excluded in left)


def _only(turn: int, skip: Callable[[str], bool]) -> Callable[[str], bool]:
    """True for what is skipped or has other turns; a folder is walked in each turn that its files may have."""

    def other(name: str) -> bool:
        parts = name.split("/")
        return skip(name) or (turn not in _turns_below(parts))

    return other


def _turns_below(parts: list[str]) -> tuple[int, ...]:
    """The turns of a file of this name, or of those below a folder of this name."""
    match parts:
        case ["dagster", *_]:
            return (0,)
        case ["verdicts", *_]:
            return (1,)
        case ["records"] | ["records", _]:
            return (2, 3)
        case ["records", _, "objects", *_]:
            return (3,)
        case ["records", *_]:
            return (2,)
        case ["mlflow"]:
            return (_MLFLOW_TURN, _FILES_TURN)
        case ["mlflow", "mlflow.db"]:
            return (_MLFLOW_TURN,)
        case ["attempts", *_]:
            return (_ATTEMPTS_TURN,)
        case [name] if name == ATTEMPTS_FILE:
            return (_ATTEMPTS_TURN,)
        case _:
            return (_FILES_TURN,)


def _turn_of_database(database: Database) -> int:
    """One that Dagster and attempts share is dumped once, with Dagster's runs."""
    if DAGSTER in database.holds:
        return 0
    return _ATTEMPTS_TURN if ATTEMPTS in database.holds else _MLFLOW_TURN
