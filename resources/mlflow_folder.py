"""The artifact addresses in MLflow's SQLite file: read, and written anew after its state folder was moved or copied.

MLflow stores absolute artifact addresses. Without this, a moved registry names files that are gone, and
a copied one goes on writing into the folder that it was copied from.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

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
    noted, here = folder / "location", folder.resolve().as_uri()
    written_for = noted.read_text(encoding="utf-8") if noted.is_file() else here
    if written_for != here and (folder / "mlflow.db").is_file():
        _rewrite(folder / "mlflow.db", written_for, here)
    if written_for != here or not noted.is_file():
        noted.write_text(here, encoding="utf-8")


def source_of(folder: Path, name: str, version: str) -> str | None:
    """Address of the files of a registered version, without the two seconds that importing MLflow takes."""
    if not (folder / "mlflow.db").is_file():
        return None
    query = "SELECT source FROM model_versions WHERE name = ? AND version = ?"
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        found = connection.execute(query, (name, int(version))).fetchone()
    return found[0] if found else None


def _rewrite(database: Path, old: str, new: str) -> None:
    """Replace the prefix of every address, all or none."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for table, column in _ADDRESSES:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (new, len(old) + 1, len(old) + 1, f"{old}/"),
            )
