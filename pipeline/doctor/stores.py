"""What lies in the state folder: Dagster's and MLflow's databases, the verdict logs and the alias that follows them.

The databases are read through SQLite itself: importing MLflow takes seconds, and opening a store would migrate it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from lifecycle.checks import CheckResult, holds
from lifecycle.errors import TrainworthyError
from lifecycle.promotion import log
from lifecycle.promotion.champion import agreed_champion
from lifecycle.promotion.history import predecessor
from lifecycle.storage.state import StateFolder
from pipeline.doctor.project import refused
from resources.mlflow_folder import champion_alias, settle, written_for
from resources.settings import Settings, use_case_folders

_REVISION = re.compile(r"""^(revision|down_revision)\b[^=]*=\s*["']([0-9a-z_]+)["']""", re.MULTILINE)


def state_folder(settings: Settings) -> Iterator[CheckResult]:
    """The state folder can be written, or made."""
    if settings.var.exists():
        StateFolder(settings.var).check_writable()
        yield CheckResult(name="state_folder", status="pass", evidence=f"{settings.var} can be written")
        return
    place = next(folder for folder in settings.var.parents if folder.exists())
    yield holds(
        "state_folder",
        place.is_dir() and os.access(place, os.W_OK),
        evidence=f"{settings.var} does not exist yet; the first run makes it in {place}",
        fix="make that folder writable, or name another one in TRAINWORTHY_VAR",
    )


def dagster_folder(settings: Settings) -> Path:
    """Where Dagster's databases lie (resources/storage.py)."""
    return settings.var / "dagster"


def dagster_store(settings: Settings) -> Iterator[CheckResult]:
    """Dagster's databases can be read and have the installed version's schema."""
    folder = dagster_folder(settings)
    known = revisions("dagster", "_core/storage/alembic/versions")
    for name in ("history/runs.db", "history/runs/index.db", "schedules/schedules.db"):
        fix = f"DAGSTER_HOME={Path.cwd()} dagster instance migrate; if that fails, move {folder} away: history is lost"
        yield schema_check(f"dagster {Path(name).name}", folder / name, known, fix)


def mlflow_store(settings: Settings) -> Iterator[CheckResult]:
    """MLflow's database can be read, has the installed version's schema, and names files of this folder."""
    server = os.environ.get("MLFLOW_TRACKING_URI")
    if server:
        yield CheckResult(name="mlflow", status="not_applicable", evidence=f"the server {server} is used; not asked")
        return
    folder = settings.var / "mlflow"
    known = revisions("mlflow", "store/db_migrations/versions")
    fix = f"mlflow db upgrade sqlite:///{folder}/mlflow.db, after a copy of the file"
    yield schema_check("mlflow mlflow.db", folder / "mlflow.db", known, fix)
    written = written_for(folder)
    yield holds(
        "mlflow_addresses",
        written in (None, folder.resolve().as_uri()),
        severity="warning",
        evidence=f"MLflow's files were written for {written}" if written else "nothing is written yet",
        fix="trainworthy doctor --mend writes the addresses anew; the next run does so too",
    )


def schema_check(name: str, database: Path, known: dict[str, str | None], fix: str) -> CheckResult:
    """The database is whole and at the newest of the known revisions; one that does not exist yet passes."""
    if not database.is_file():
        return CheckResult(name=name, status="pass", evidence="not made yet; the first run makes it")
    newest = known.keys() - set(known.values())
    # SQLite writes beside a file that it only reads, unless it is told that nobody can.
    mode = "mode=ro" if os.access(database.parent, os.W_OK) else "immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?{mode}", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            found = {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")}
    except sqlite3.Error as error:
        return CheckResult(name=name, status="fail", evidence=f"{database} cannot be read: {error}", fix=fix)
    told = f"schema {', '.join(sorted(found)) or 'none'}"
    if len(found) != 1:
        return CheckResult(name=name, status="fail", evidence=f"{database} has {told}: one is needed", fix=fix)
    if not found <= known.keys():
        fix = "install the version that wrote it (make setup), or one that is newer"
        return CheckResult(name=name, status="fail", evidence=f"{told} is unknown to the installed version", fix=fix)
    return holds(name, found <= newest, evidence=f"{told}, newest {', '.join(sorted(newest))}", fix=fix)


def revisions(package: str, folder: str) -> dict[str, str | None]:
    """Each schema revision of an installed package and the one before it, read from its migrations' text."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = {}
    for path in (Path(spec.submodule_search_locations[0]) / folder).glob("*.py"):
        values = dict(_REVISION.findall(path.read_text(encoding="utf-8")))
        if "revision" in values:
            found[values["revision"]] = values.get("down_revision")
    return found


def verdicts(settings: Settings) -> Iterator[CheckResult]:
    """Each verdict log is an unbroken chain, and the registry's alias agrees with it."""
    for folder in use_case_folders(settings):
        name = f"verdicts {folder.name}"
        try:
            entries = log.read(settings.var / "verdicts" / f"{folder.name}.jsonl")
            aliased, told = None, "the registry's server was not asked"
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                aliased = champion_alias(settings.var / "mlflow", folder.name)
                agreed_champion(entries, folder.name, aliased)
                told = f"champion {aliased or 'none'}"
        except TrainworthyError as error:
            yield refused(name, error)
        else:
            yield CheckResult(name=name, status="pass", evidence=f"{len(entries)} entries, {told}")


def mend_addresses(settings: Settings) -> Iterator[str]:
    """Write MLflow's addresses for the folder where it lies now."""
    folder = settings.var / "mlflow"
    if (folder / "mlflow.db").is_file() and not os.environ.get("MLFLOW_TRACKING_URI"):
        before = written_for(folder)
        settle(folder)
        if before != written_for(folder):
            yield f"MLflow's addresses are those of {folder}"


def mend_aliases(settings: Settings) -> Iterator[str]:
    """Make the local registry's alias follow the log, where the log names a champion.

    Without one in the log the alias stays: what it points to is all that is left of a lost log.
    """
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return
    for folder in use_case_folders(settings):
        with contextlib.suppress(TrainworthyError):
            entries = log.read(settings.var / "verdicts" / f"{folder.name}.jsonl")
            entry = log.champion(entries)
            if entry is None or entry.model_version == champion_alias(settings.var / "mlflow", folder.name):
                continue
            before = predecessor(entries)
            _point(folder.name, entry.model_version, before.model_version if before else None)
            yield f"{folder.name}: the alias champion points to version {entry.model_version}, as in the verdict log"


def _point(name: str, version: str, previous: str | None) -> None:
    from resources.mlflow import Tracking

    Tracking().set_champion(name, version, previous)
