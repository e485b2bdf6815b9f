"""Restore a backup to empty places: verified first, beside its place until it is whole, then renamed.

Nothing half is left: files are written to a folder beside the state folder, each database is filled in one transaction,
and if one of them fails, those before it are emptied again. The state folder gets its name last of all: before that no
command finds anything of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.progress import Progress, never_silent, say
from trainworthy.pipeline.backup import postgres
from trainworthy.pipeline.backup.consistent import problems
from trainworthy.pipeline.backup.files import copied
from trainworthy.pipeline.backup.manifest import ARTIFACTS, STATE, Manifest, read_manifest
from trainworthy.pipeline.backup.places import address_of, has_own_registry
from trainworthy.pipeline.backup.signals import undisturbed
from trainworthy.pipeline.backup.verify import verified
from trainworthy.resources.attempt_table import FILE as ATTEMPTS_FILE
from trainworthy.resources.dagster_settings import dagster_home, storage_kind
from trainworthy.resources.mlflow_folder import settle
from trainworthy.resources.settings import Settings

_SHOWN = 5


def restore_backup(settings: Settings, folder: Path, artifacts: Path | None = None) -> tuple[Manifest, str]:
    """Restore to the state folder and databases of the settings, and the files of MLflow's server to `artifacts`.

    Raises BackupError if a byte of the backup is not as it was written, a place is not empty, or the settings name
    other kinds of places than the backup was taken from; then nothing was written.
    """
    # What costs nothing is asked first: hashing a large backup takes minutes.
    manifest, _ = read_manifest(folder)
    databases = _databases(settings, manifest)
    places = {STATE: settings.var} | ({ARTIFACTS: artifacts.resolve()} if artifacts else {})
    _refuse_other_places(settings, manifest, places)
    _refuse_taken(places, [database for _, database in databases])
    manifest, sha256 = verified(folder)
    for name, _ in databases:
        if not postgres.readable(folder / name):
            fix = "install the version of PostgreSQL's client programs that took it, or a newer one"
            raise BackupError("pg_restore cannot read a dump", value=name, fix=fix)
    with ExitStack() as undone, never_silent("restore"):
        staged = {below: _staged(place, undone) for below, place in places.items()}
        _copy(folder, manifest, staged)
        faults = problems(staged[STATE], own_registry=has_own_registry(manifest.without))
        if faults:
            fix = "restore an earlier backup; nothing of this one was restored"
            raise BackupError("the backup does not hold together", value=faults[:_SHOWN], fix=fix)
        for name, database in databases:
            say(f"restore: {', '.join(database.holds)} to {database.shown}")
            postgres.restore(database, folder / name)
            undone.callback(postgres.emptied, database)
        os.sync()
        # Else a signal right after the last rename would empty the databases of a state folder that is there.
        with undisturbed():
            for below in (ARTIFACTS, STATE):
                if below in places:
                    _install(staged[below], places[below])
                    if below == ARTIFACTS:
                        undone.callback(shutil.rmtree, places[below])
            undone.pop_all()
    # MLflow's files have absolute addresses, and are at another place now.
    if (settings.var / "mlflow" / "mlflow.db").is_file():
        settle(settings.var / "mlflow")
    return manifest, sha256


def _databases(settings: Settings, manifest: Manifest) -> list[tuple[str, postgres.Database]]:
    """Each dump with where it goes. What lay in one database may lie in one only: it is one dump."""
    targets = []
    for name, holds in manifest.dumps.items():
        named = postgres.databases({what: address_of(what, settings) for what in holds})
        if len(named) != 1:
            shown = [database.shown for database in named]
            fix = "name one database for all of them: they are in one dump"
            raise BackupError(f"{' and '.join(holds)} lay in one database", value=shown, fix=fix)
        targets.append((name, named[0]))
    return targets


def _refuse_other_places(settings: Settings, manifest: Manifest, places: dict[str, Path]) -> None:
    """The settings have to be for the backup: what it has as a file would never be read where a database is named."""
    held = {what for holds in manifest.dumps.values() for what in holds}
    if f"{STATE}/{ATTEMPTS_FILE}" in manifest.files and settings.database and "attempts" not in held:
        fix = "unset TRAINWORTHY_DATABASE: attempts.db of the state folder is read then"
        raise BackupError("the backup has attempts as a file, and TRAINWORTHY_DATABASE names a database", fix=fix)
    if settings.shared is not None and any(name.startswith(f"{STATE}/records/") for name in manifest.files):
        fix = "unset TRAINWORTHY_STATE: records and verdict logs of the state folder are read then"
        raise BackupError("the backup has records as files, and TRAINWORTHY_STATE names another place", fix=fix)
    own = any(name.startswith(f"{STATE}/dagster/history/") for name in manifest.files)
    if own and "dagster" not in held and storage_kind(dagster_home(settings)) != "state_folder":
        fix = "restore with the dagster.yaml that it was taken with (its commit: see the manifest)"
        raise BackupError("the backup has Dagster's runs as files, and dagster.yaml names another storage", fix=fix)
    server = bool(os.environ.get("MLFLOW_TRACKING_URI"))
    if f"{STATE}/mlflow/mlflow.db" in manifest.files and server:
        fix = "unset MLFLOW_TRACKING_URI: the registry of the state folder is used then"
        raise BackupError("the backup has the registry as a file, and MLFLOW_TRACKING_URI names a server", fix=fix)
    if any(name.startswith(f"{ARTIFACTS}/") for name in manifest.files) and ARTIFACTS not in places:
        fix = "name the folder that the server shall have them in: --mlflow-artifacts FOLDER"
        raise BackupError("the backup has files of MLflow's server, and no place for them is named", fix=fix)


def _refuse_taken(places: dict[str, Path], databases: Sequence[postgres.Database]) -> None:
    """Every place that is not empty, at once."""
    taken = [str(place) for place in places.values() if place.exists() and not _is_empty(place)]
    for database in databases:
        if existing := postgres.objects(database):
            taken.append(
                f"{database.shown} has {existing[0]}{f' and {len(existing) - 1} more' if len(existing) > 1 else ''}"
            )
    if taken:
        fix = "restore to a new place: name another TRAINWORTHY_VAR and new databases, or move what is there away first"
        raise BackupError("what would be restored to is in use", value=taken, fix=fix, code="backup.in_use")


def _is_empty(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink() and not any(place.iterdir())


def _staged(place: Path, undone: ExitStack) -> Path:
    """A folder beside the place, which goes again if anything fails."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.unfinished-"))
    except OSError as error:
        fix = "make the folder above it writable, or name another place"
        raise BackupError(f"nothing can be written beside it: {error.strerror}", value=str(place), fix=fix) from None
    undone.callback(shutil.rmtree, work, ignore_errors=True)
    return work


def _copy(folder: Path, manifest: Manifest, staged: dict[str, Path]) -> None:
    """Each file to its staged place, hashed once more: the backup may lie on a disk that fails."""
    named = {name: recorded for name, recorded in manifest.files.items() if name.partition("/")[0] in staged}
    progress = Progress("restore", len(named))
    for name, recorded in named.items():
        below, _, rest = name.partition("/")
        target = staged[below] / rest
        if copied(folder / name, target).sha256 != recorded.sha256:
            fix = "take another copy of this backup; nothing was restored"
            raise BackupError("a file changed while it was restored", value=name, fix=fix, code="backup.changed")
        os.utime(target, ns=(recorded.modified_ns, recorded.modified_ns))
        target.chmod(recorded.mode)
        progress.advance()
    progress.close()
    # The deepest first: making what is in a folder changes its time.
    for name, modified in sorted(
        manifest.folders.items(), key=lambda name_and_time: name_and_time[0].count("/"), reverse=True
    ):
        below, _, rest = name.partition("/")
        if below in staged:
            (staged[below] / rest).mkdir(parents=True, exist_ok=True)
            os.utime(staged[below] / rest, ns=(modified, modified))


def _install(staged: Path, place: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    # mkdtemp's folders are their owner's alone.
    staged.chmod(0o777 & ~mask)
    try:
        if place.exists():
            place.rmdir()
        staged.rename(place)
    except OSError as error:
        fix = "name a folder below a mounted disk, not the mount itself, or make it writable"
        raise BackupError(f"the place cannot be taken: {error.strerror}", value=str(place), fix=fix) from None
