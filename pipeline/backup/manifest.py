"""A backup's manifest: each of its files with hash and size, what was left out, and where the rest of it lay.

A backup is a folder: `state/` (files of the state folder), `databases/` (dumps of PostgreSQL), `artifacts/` (those of
MLflow's server), `manifest.json`, and `manifest.sha256` with the manifest's hash, by which a backup is known.
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

from pydantic import Field, ValidationError, field_validator

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic

FORM = 1
FILE, SEAL = "manifest.json", "manifest.sha256"
STATE, DATABASES, ARTIFACTS = "state", "databases", "artifacts"
# What a database of PostgreSQL is asked for; one of MLflow's server goes by the variable that names it.
ATTEMPTS, DAGSTER = "attempts", "dagster"
# Of a file's mode: who may read, write and run it. Nothing that runs as somebody else comes out of a backup.
MODES = 0o777


class Fingerprint(Frozen):
    """A file: hash of its bytes, their number, when they were last written (Unix time in nanoseconds, by
    which runs are listed in order), its mode.

    A backup that was copied to a disk without modes has them here alone.
    """

    sha256: str
    bytes: int = Field(ge=0)
    modified_ns: int
    mode: int = Field(default=0o644, ge=0, le=MODES)


class Manifest(Frozen):
    """What a backup holds. Names are relative to its folder, with / between their parts.

    `folders` have the time of their last change. `dumps` has for each database what lies in it: `attempts`, `dagster`,
    or the variables that name a database of MLflow's server. `running` is what was in progress meanwhile, `gone` files
    that were listed and then not there, `without` what the user left out.
    """

    form: int = FORM
    product: str
    taken_at: str
    state_folder: str
    commit: str | None
    files: dict[str, Fingerprint]
    folders: dict[str, int]
    dumps: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    running: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @field_validator("files", "folders", "dumps")
    @classmethod
    def _stay_inside(cls, named: dict[str, object]) -> dict[str, object]:
        for name in named:
            if not stays_inside(name):
                raise ValueError(f"{name!r} leads out of the backup")
        return named

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(file.bytes for file in self.files.values())


def stays_inside(name: str) -> bool:
    """True for a plain relative name below one of a backup's folders: nothing in it leads elsewhere."""
    path = PurePosixPath(name)
    plain = str(path) == name and not path.is_absolute() and "\0" not in name and "\\" not in name
    return plain and ".." not in path.parts and path.parts[0] in (STATE, DATABASES, ARTIFACTS)


def write_manifest(folder: Path, manifest: Manifest) -> str:
    """Write it as the last file of a backup, and its hash beside it; gives the hash."""
    content = canonical_json(manifest.model_dump(mode="json"))
    sha256 = hashlib.sha256(content).hexdigest()
    write_atomic(folder / FILE, content)
    write_atomic(folder / SEAL, f"{sha256}  {FILE}\n".encode())
    return sha256


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest and its hash. Raises BackupError if the folder holds no whole backup of a known form."""
    fix = "name the folder that `trainworthy backup` wrote, or take another copy of it"
    try:
        content, sealed = (folder / FILE).read_bytes(), (folder / SEAL).read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BackupError(f"the folder holds no whole backup: {error}", value=str(folder), fix=fix) from None
    sha256 = hashlib.sha256(content).hexdigest()
    if sealed[:1] != [sha256]:
        raise BackupError("the backup's manifest was changed after it was written", value=str(folder / FILE), fix=fix)
    try:
        return Manifest.model_validate_json(content), sha256
    except ValidationError as error:
        mistakes = "; ".join(str(mistake["msg"]) for mistake in error.errors()[:3])
        fix = "use the Trainworthy that wrote it"
        raise BackupError(
            f"the backup's manifest is of no known form: {mistakes}", value=str(folder), fix=fix
        ) from None
