"""What lies in the state folder, and in the storage that outlives this machine.

There: Dagster's and MLflow's databases, the verdict logs and the alias that follows them; here: copies of checkpoints.

The databases are read through SQLite itself: importing MLflow takes seconds, and opening a store would migrate it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from trainworthy.lifecycle.errors import ChampionError, TrainworthyError
from trainworthy.lifecycle.gates.declared import LOST_DISKS, NETWORK_DISKS, file_system
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.champion import agreed_champion
from trainworthy.lifecycle.promotion.history import predecessor
from trainworthy.lifecycle.promotion.judged import artifacts_of
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.storage.durable.bucket import is_bucket
from trainworthy.lifecycle.storage.durable.place import takes_copies
from trainworthy.lifecycle.storage.shared.store import HeldLease
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.doctor.project import in_short, loadable, refused
from trainworthy.resources.mlflow_folder import champion_alias, settle, written_for
from trainworthy.resources.settings import DURABLE, STATE, Settings, state_owners, use_case_folders
from trainworthy.resources.shared_state import records_of, refuse_own_registry, shared_state, verdict_log_of

# MLflow asks a server that does not answer for minutes; importing it takes 2 s, several on a busy machine.
SERVER_SECONDS = 30.0
_REVISION = re.compile(r"""^(revision|down_revision)\b[^=]*=\s*["']([0-9a-z_]+)["']""", re.MULTILINE)


def state_folder(settings: Settings) -> Iterator[CheckResult]:
    """The state folder can be written, or made, and is this project's."""
    if settings.var.exists():
        StateFolder(settings.var).check_writable()
        if settings.use_cases:
            state_owners(settings)
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
        migrate = f"DAGSTER_HOME={shlex.quote(str(settings.project))} dagster instance migrate"
        fix = f"{migrate}; if that fails, move {folder} away: history is lost"
        yield schema_check(f"dagster {Path(name).name}", folder / name, known, fix)


def server() -> str:
    """Address of the registry's server; "" if the registry lies in the state folder."""
    return os.environ.get("MLFLOW_TRACKING_URI", "")


def mlflow_store(settings: Settings) -> Iterator[CheckResult]:
    """MLflow's database can be read, has the installed version's schema, and names files of this folder."""
    if server():
        evidence = f"the server {without_credentials(server())} is used; verdicts says whether it answers"
        yield CheckResult(name="mlflow", status="not_applicable", evidence=evidence)
        return
    folder = settings.var / "mlflow"
    known = revisions("mlflow", "store/db_migrations/versions")
    fix = f"mlflow db upgrade {shlex.quote(f'sqlite:///{folder}/mlflow.db')}, after a copy of the file"
    yield schema_check("mlflow mlflow.db", folder / "mlflow.db", known, fix)
    written = written_for(folder)
    yield holds(
        "mlflow_addresses",
        written in (None, folder.resolve().as_uri()),
        severity="warning",
        evidence=f"MLflow's files were written for {written}" if written else "nothing is written yet",
        fix="trainworthy doctor --fix writes the addresses anew; the next run does so too",
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
            stored = {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")}
    except sqlite3.Error as error:
        return CheckResult(name=name, status="fail", evidence=f"{database} cannot be read: {error}", fix=fix)
    schema = f"schema {', '.join(sorted(stored)) or 'none'}"
    if len(stored) != 1:
        return CheckResult(name=name, status="fail", evidence=f"{database} has {schema}: one is needed", fix=fix)
    if not stored <= known.keys():
        fix = "install the version that wrote it (make setup), or one that is newer"
        return CheckResult(name=name, status="fail", evidence=f"{schema} is unknown to the installed version", fix=fix)
    return holds(name, stored <= newest, evidence=f"{schema}, newest {', '.join(sorted(newest))}", fix=fix)


def revisions(package: str, folder: str) -> dict[str, str | None]:
    """Each schema revision of an installed package and the one before it, read from its migrations' text."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    previous = {}
    for path in (Path(spec.submodule_search_locations[0]) / folder).glob("*.py"):
        values = dict(_REVISION.findall(path.read_text(encoding="utf-8")))
        if "revision" in values:
            previous[values["revision"]] = values.get("down_revision")
    return previous


def verdicts(settings: Settings) -> Iterator[CheckResult]:
    """Each verdict log is an unbroken chain, and the registry's alias agrees with it."""
    names = [folder.name for folder in use_case_folders(settings)]
    if server() and not any(verdict_log_of(settings, name).exists() for name in names):
        # A database without tables would get them from the question.
        evidence = "no verdict yet; the registry's server was not asked"
        yield CheckResult(name="verdicts", status="not_applicable", evidence=evidence)
        return
    try:
        aliased, unknown = aliases(settings, names), None
    except ChampionError as error:
        aliased, unknown = {}, error
    for name in names:
        try:
            entries = log.read(verdict_log_of(settings, name))
            if unknown is None:
                agreed_champion(entries, name, aliased[name])
        except TrainworthyError as error:
            yield refused(f"verdicts {name}", error)
            continue
        status, fix = ("insufficient", unknown.fix) if unknown else ("pass", "")
        champion_state = unknown.problem if unknown else f"champion {aliased[name] or 'none'}"
        yield CheckResult(
            name=f"verdicts {name}",
            status=status,
            severity="warning",
            evidence=f"{len(entries)} entries, {champion_state}",
            fix=fix,
        )


def aliases(settings: Settings, names: Sequence[str]) -> dict[str, str | None]:
    """The version that each model's alias `champion` points to; a local registry is read without importing MLflow.

    Raises ChampionError if the registry cannot be asked, or does not answer in time.
    """
    if not server():
        return {name: champion_alias(settings.var / "mlflow", name) for name in names}
    versions: dict[str, str | None] = {}
    problem = [f"no answer within {SERVER_SECONDS:.0f} s"]

    def ask() -> None:
        from trainworthy.resources.mlflow import Tracking

        try:
            models = {name: Tracking().aliased(name) for name in names}
            versions.update({name: model and model.version for name, model in models.items()})
        except Exception as error:
            problem[0] = in_short(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SERVER_SECONDS)
    if len(versions) == len(names):
        return versions
    message = f"the registry's server {without_credentials(server())} could not be asked: {problem[0]}"
    raise ChampionError(message, fix="start the server, or name the right one in MLFLOW_TRACKING_URI")


def repair_addresses(settings: Settings) -> Iterator[str]:
    """Write MLflow's addresses for the folder where it lies now."""
    folder = settings.var / "mlflow"
    if server() or not (folder / "mlflow.db").is_file():
        return
    from trainworthy.resources.mlflow_folder import first_use

    with first_use(folder):
        before = written_for(folder)
        settle(folder)
        if before != written_for(folder):
            yield f"MLflow's addresses are those of {folder}"


def repair_aliases(settings: Settings) -> Iterator[str | TrainworthyError]:
    """Make the registry's alias follow the log, where the log names a champion; gives the error of one that may not.

    Without one in the log the alias stays: what it points to is all that is left of a lost log. Raises ChampionError
    if the registry cannot be asked.
    """
    if not server() and not (settings.var / "mlflow" / "mlflow.db").is_file():
        return
    from trainworthy.assets.champion import judged_alone
    from trainworthy.resources.workspace import Workspace

    for folder in use_case_folders(settings):
        if not verdict_log_of(settings, folder.name).exists():
            continue
        try:
            use_case = load_use_case(folder)
        except TrainworthyError:
            continue  # Told by its own check.
        with judged_alone(Workspace(), use_case) as held:
            yield from _repair_alias(settings, folder.name, held)


def _repair_alias(settings: Settings, name: str, held: HeldLease) -> Iterator[str | TrainworthyError]:
    """`held` is the lease of the use case's judgement: log and alias stay as they are read here."""
    try:
        entries = log.read(verdict_log_of(settings, name))
    except TrainworthyError:
        return  # A broken log is told by its own check, and fixed by nobody but a person.
    entry = log.champion(entries)
    if entry is None or entry.model_version == aliases(settings, [name])[name]:
        return
    try:
        _follow(settings, name, held, entries, entry.model_version)
    except TrainworthyError as error:
        yield error  # The other use cases' aliases are mended all the same.
    else:
        yield f"{name}: the alias champion points to version {entry.model_version}, as in the verdict log"


def _follow(settings: Settings, name: str, held: HeldLease, entries: tuple[log.LogEntry, ...], version: str) -> None:
    """Let the alias point to the log's champion. Raises ChampionError if it is another registry's or log's."""
    from trainworthy.assets.champion import move_alias, refuse_alias_of_another_log, refuse_other_model
    from trainworthy.resources.mlflow import Tracking

    records, tracking = records_of(settings), Tracking()
    artifacts = artifacts_of(entries, records)
    before = predecessor(entries, artifacts)
    registered = next((model for model in tracking.versions(name) if model.version == version), None)
    refuse_other_model(registered, name, version, artifacts.get(version))
    refuse_alias_of_another_log(tracking, records, name, entries)
    move_alias(tracking, name, held, version, before.model_version if before else None)


def shared_place(settings: Settings) -> Iterator[CheckResult]:
    """It may be written, is changed only as it was read, and the registry is shared as well."""
    if settings.shared is None:
        evidence = f"{STATE} names no place: records and verdict logs lie in the state folder"
        yield CheckResult(name="shared_state", status="not_applicable", evidence=evidence)
        return
    place = without_credentials(settings.shared)
    try:
        shared_state(settings).check()
    except TrainworthyError as error:
        evidence = f"records and verdict logs lie in {place}: {error.problem}"
        fix = f"{error.fix}; every run refuses until then"
        yield CheckResult(name="shared_state", status="fail", evidence=evidence, fix=fix)
        return
    yield CheckResult(
        name="shared_state", status="pass", evidence=f"records and verdict logs lie in {place}, which keeps conditions"
    )
    try:
        refuse_own_registry(settings)
    except TrainworthyError as error:
        evidence, fix = error.problem, f"{error.fix}; every run refuses until then"
        yield CheckResult(name="shared_registry", status="fail", evidence=evidence, fix=fix)
        return
    yield CheckResult(name="shared_registry", status="pass", evidence="the registry is a server's")


def durable_folder(settings: Settings) -> Iterator[CheckResult]:
    """The storage for copies of checkpoints takes files; use cases on spot machines have one that outlives them."""
    durable, spot = settings.durable, _on_spot(settings)
    if durable is None:
        yield _unnamed(settings, spot)
        return
    make = "put that right" if is_bucket(durable) else "mount it and make it writable"
    fix = f"{make}, or name another place in {DURABLE}; every training refuses until then"
    try:
        takes_copies(durable)
    except (OSError, TrainworthyError) as error:
        said = error.strerror or error if isinstance(error, OSError) else f"{error.problem}; {error.fix}"
        evidence = f"checkpoints are copied to {durable}, which takes no files: {said}"
        yield CheckResult(name="durable_folder", status="fail", evidence=evidence, fix=fix)
        return
    kind = file_system(durable)
    yield holds(
        "durable_folder",
        not (spot and kind.startswith(LOST_DISKS)),
        severity="warning",
        evidence=f"checkpoints are copied to {durable}, which takes files and lies on {kind}{_spot_note(spot)}",
        fix=f"memory and a container's own layer go with a spot machine: name a volume or a bucket in {DURABLE}",
    )


def _unnamed(settings: Settings, spot: list[str]) -> CheckResult:
    """No folder is named: nothing is amiss, unless a spot machine would take its only checkpoints with it."""
    if not spot:
        evidence = f"{DURABLE} names no storage, and no use case trains on a spot machine"
        return CheckResult(name="durable_folder", status="not_applicable", evidence=evidence)
    kind = file_system(next(folder for folder in (settings.var, *settings.var.parents) if folder.exists()))
    return holds(
        "durable_folder",
        kind.startswith(NETWORK_DISKS),
        severity="warning",
        evidence=f"{DURABLE} names no storage, and checkpoints lie on {kind}{_spot_note(spot)}",
        fix=f"name storage that outlives the machine in {DURABLE}, or remove compute.spot",
    )


def _spot_note(spot: list[str]) -> str:
    return f"; on spot machines train {', '.join(spot)}" if spot else ""


def _on_spot(settings: Settings) -> list[str]:
    """Names of the use cases that declare a spot machine."""
    return [use_case.name for use_case in loadable(settings) if use_case.spec.compute.spot]
