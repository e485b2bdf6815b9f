"""MLflow's SQLite file: made once and whole, read without MLflow, its artifact addresses those of where it lies.

MLflow stores absolute artifact addresses. Without this, a moved registry names files that are gone, and
a copied one goes on writing into the folder that it was copied from.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

# The view of an experiment that shows its runs with the columns that people compare.
VIEW = "trainworthy"
# Every column with the address of a local artifact, in MLflow 3.
_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("logged_models", "artifact_location"),
)


def settle(folder: Path) -> None:
    """Make the addresses in <folder>/mlflow.db those of this folder. The caller holds the lock of its first use.

    `location` beside the file says for which folder they were written; without one, as in a new folder, for this.
    """
    noted, here = written_for(folder), folder.resolve().as_uri()
    if noted is not None and noted != here and (folder / "mlflow.db").is_file():
        _rewrite(folder / "mlflow.db", noted, here)
    if noted != here:
        (folder / "location").write_text(here, encoding="utf-8")


def written_for(folder: Path) -> str | None:
    """The folder for which the addresses were written, as a URI; None if that was never noted."""
    noted = folder / "location"
    return noted.read_text(encoding="utf-8") if noted.is_file() else None


def champion_alias(folder: Path, name: str) -> str | None:
    """Version that the alias `champion` of a model points to, None without one; read without importing MLflow."""
    database = folder / "mlflow.db"
    if not database.is_file():
        return None
    query = "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = 'champion'"
    with contextlib.closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        row = connection.execute(query, (name,)).fetchone()
    return None if row is None else str(row[0])


def source_of(folder: Path, name: str, version: str) -> str | None:
    """Address of the files of a registered version, without the two seconds that importing MLflow takes."""
    if not (folder / "mlflow.db").is_file():
        return None
    query = "SELECT source FROM model_versions WHERE name = ? AND version = ?"
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        row = connection.execute(query, (name, int(version))).fetchone()
    return row[0] if row else None


def experiments(folder: Path) -> dict[str, tuple[str, bool]]:
    """The experiments with runs, by name: id, and whether there is a view of it from outside; read without MLflow."""
    if not (folder / "mlflow.db").is_file():
        return {}
    query = (
        "SELECT name, experiment_id, EXISTS (SELECT 1 FROM experiment_tags t WHERE t.key = ?"
        " AND t.experiment_id = e.experiment_id) FROM experiments e WHERE lifecycle_stage = 'active'"
        " AND EXISTS (SELECT 1 FROM runs r WHERE r.experiment_id = e.experiment_id) ORDER BY name"
    )
    address = f"{(folder / 'mlflow.db').resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        rows = connection.execute(query, (f"mlflow.sharedViewState.{VIEW}",)).fetchall()
    return {name: (str(number), bool(shared)) for name, number, shared in rows}


def _rewrite(database: Path, old: str, new: str) -> None:
    """Replace the prefix of every address, all or none."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for table, column in _ADDRESSES:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (new, len(old) + 1, len(old) + 1, f"{old}/"),
            )


def create_database(database: Path) -> None:
    """Make a database that does not exist, under another name until it is whole.

    Migrations take seconds; one that was killed on the way would leave a file that MLflow can neither use nor migrate.
    """
    if database.exists():
        return
    from mlflow import MlflowClient

    for left in database.parent.glob(".new-*"):
        left.unlink()
    fresh = database.with_name(".new-mlflow.db")
    MlflowClient(tracking_uri=f"sqlite:///{fresh}").search_experiments(max_results=1)
    os.replace(fresh, database)


@contextlib.contextmanager
def first_use(folder: Path) -> Iterator[None]:
    """One process at a time makes the local store, or writes its addresses anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
