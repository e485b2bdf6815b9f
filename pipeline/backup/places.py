"""Where the project's state lies by its settings: the state folder, databases, and the files of MLflow's server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.pipeline.backup.manifest import ATTEMPTS, DAGSTER
from trainworthy.pipeline.backup.postgres import Database, databases
from trainworthy.resources.dagster_settings import dagster_home, database_address, storage_kind
from trainworthy.resources.settings import DATABASE, STATE, Settings

Left = Literal["dagster", "mlflow", "shared_state"]


@dataclass(frozen=True)
class Places:
    """All of it. `artifacts` is the folder of MLflow's server, None if its files lie in the state folder."""

    state: Path
    databases: tuple[Database, ...]
    artifacts: Path | None
    without: tuple[Left, ...] = ()


def places(
    settings: Settings, mlflow_databases: Sequence[str], mlflow_artifacts: Path | None, without: Sequence[Left]
) -> Places:
    """The places by settings, and those of MLflow's server, which only who runs it knows: `mlflow_databases` names
    variables with their addresses.

    Raises BackupError for what cannot be reached from here and was not left out by name.
    """
    named: dict[str, str] = {}
    kind = storage_kind(home := dagster_home(settings))
    if "dagster" not in without and kind == "postgresql":
        named[DAGSTER] = database_address(home)
    if "dagster" not in without and kind == "other":
        fix = "back it up by its own means, and say so: --without dagster"
        problem = "dagster.yaml names a storage that is neither the state folder nor PostgreSQL"
        raise BackupError(problem, value=str(home / "dagster.yaml"), fix=fix)
    if settings.shared is not None and "shared_state" not in without:
        fix = (
            "copy it by its own means (of a bucket: versions of its objects), and say so: --without shared_state. Copy "
            "it before this backup is taken: what it names is then in the backup"
        )
        problem = f"records and verdict logs lie where {STATE} says, and a backup is of the state folder alone"
        raise BackupError(problem, value=without_credentials(settings.shared), fix=fix)
    if settings.database:
        named[ATTEMPTS] = settings.database
    _check_mlflow(mlflow_databases, mlflow_artifacts, without)
    for variable in mlflow_databases:
        if not os.environ.get(variable):
            fix = f"export {variable}=postgresql://USER:PASSWORD@HOST:PORT/NAME"
            raise BackupError("a variable that shall name a database of MLflow is not set", value=variable, fix=fix)
        named[variable] = os.environ[variable]
    return Places(
        state=settings.var,
        databases=tuple(databases(named)),
        artifacts=mlflow_artifacts.resolve() if mlflow_artifacts else None,
        without=tuple(without),
    )


def _check_mlflow(variables: Sequence[str], artifacts: Path | None, without: Sequence[Left]) -> None:
    """A server's database and files are named, or left out on purpose; without one there is nothing to name."""
    server = os.environ.get("MLFLOW_TRACKING_URI", "")
    if "mlflow" in without:
        return
    if not server and (variables or artifacts):
        fix = "leave --mlflow-database and --mlflow-artifacts out, or name the server in MLFLOW_TRACKING_URI"
        raise BackupError("MLflow has no server: its files lie in the state folder", fix=fix)
    if server and not (variables and artifacts):
        fix = (
            "name what the server keeps: --mlflow-database VARIABLE (a variable with its address; once more for its "
            "users) and --mlflow-artifacts FOLDER; where it has a backup of its own: --without mlflow"
        )
        problem = "the registry is on a server, whose database and files nothing here names"
        raise BackupError(problem, value=without_credentials(server), fix=fix)
    if artifacts and not artifacts.is_dir():
        # Else a name that is mistyped would be a backup without models.
        fix = "name the folder of the server's --artifacts-destination, mounted here"
        raise BackupError("the folder of MLflow's artifacts is not there", value=str(artifacts), fix=fix)


def has_own_registry(without: Sequence[str]) -> bool:
    """True if a backup that leaves this out holds the registry as a file, in the state folder."""
    return not os.environ.get("MLFLOW_TRACKING_URI") and "mlflow" not in without


def address_of(holds: str, settings: Settings) -> str:
    """The address by the present settings of what a backup's dump holds. Raises BackupError where they name none."""
    address = ""
    match holds:
        case "dagster":
            home, variable = dagster_home(settings), "DAGSTER_DATABASE and storage.postgres of dagster.yaml"
            address = database_address(home) if storage_kind(home) == "postgresql" else ""
        case "attempts":
            variable, address = DATABASE, settings.database
        case _:
            variable, address = holds, os.environ.get(holds, "")
    if not address:
        fix = f"make an empty database there, and name it: {variable}"
        raise BackupError(f"the backup has {holds} of a PostgreSQL database, and the settings name none", fix=fix)
    return address
