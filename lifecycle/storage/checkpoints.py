"""Checkpoints as they lie in a folder: written whole or not at all, hashed, copied, and known to be what was written.

A checkpoint is a folder `step-<n>` with its files and, written last, `manifest.json` with every file's SHA-256, the
identity of the training (its data, values, code and packages) and what it was made with. Whose files these are, and
what they mean, is known to who writes them: nothing is loaded here.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.storage.state import sync_folder, write_atomic

KEEP = 2
MANIFEST = "manifest.json"
# In a stage's folder: the step of its newest checkpoint, where that lies elsewhere (resources/backends/travel).
REACHED = ".reached"
_WRITING = ".writing-"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}"


@dataclass(frozen=True)
class Draft:
    """A folder to write a checkpoint's files into, and hashes of those whose bytes were hashed while written."""

    path: Path
    sha256: dict[str, str] = field(default_factory=dict)


@contextmanager
def writing(folder: Path, step: int, identity: str, made_with: Mapping[str, str] | None = None) -> Iterator[Draft]:
    """A draft; it is the checkpoint of the step once the block has ended without an error. The newest KEEP stay.

    Raises what the block raises, OSError with the disk's own errno among it; nothing is left of the draft then.
    """
    final = checkpoint_path(folder, step)
    temporary = _fresh(folder, final.name)
    try:
        draft = Draft(temporary)
        yield draft
        files = _synced(temporary, draft.sha256)
        manifest = {"identity": identity, "step": step, "files": files, "made_with": dict(made_with or {})}
        write_atomic(temporary / MANIFEST, canonical_json(manifest))
    except BaseException:
        # On a full disk it is the room that the next attempt needs.
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _install(temporary, final)


def verify_checkpoint(path: Path, sha256: str | None = None, identity: str | None = None) -> dict[str, Any]:
    """The manifest, if the files are the ones it names, with these bytes. Raises CheckpointError.

    Its own hash is to be `sha256`, and its training `identity`, where these are given. The manifest of an earlier
    version, which names one file alone, counts as well.
    """
    manifest = _manifest(path)
    if sha256 is not None and sha256_file(path / MANIFEST) != sha256:
        raise CheckpointError(
            "the checkpoint is not the one on record", value=str(path), fix="run the stage before again"
        )
    if identity is not None and manifest["identity"] != identity:
        raise CheckpointError("the checkpoint belongs to another training", value=str(path), fix="delete this folder")
    # Other files may lie there: network storage and tools that synchronise leave some of their own.
    named = manifest["files"].keys() & set(_names(path))
    if {name: sha256_file(path / name) for name in named} != manifest["files"]:
        raise CheckpointError("the checkpoint's bytes were changed", value=str(path), fix="delete this folder")
    return manifest


def copy_checkpoint(path: Path, durable: Path) -> None:
    """Copy a complete checkpoint below `durable`: whole or not at all, read back against its hash. Raises OSError."""
    final = durable / path.name
    temporary = _fresh(durable, path.name)
    try:
        shutil.copytree(path, temporary, dirs_exist_ok=True, copy_function=shutil.copyfile)
        _synced(temporary, {})
        verify_checkpoint(temporary)
    except CheckpointError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(errno.EIO, f"the copy differs: {error.problem}", str(final)) from None
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _install(temporary, final)


def reached_step(out: Path) -> int:
    """The step of the newest checkpoint of a stage's folder, read from its name alone; 0 if there is none.

    Of a training on a machine with another disk REACHED tells it, unless one was written here since.
    """
    newest = max((out / "checkpoints").glob("step-*"), default=None)
    here = 0 if newest is None else int(newest.name.removeprefix("step-"))
    try:
        told, told_at = int((out / REACHED).read_text()), (out / REACHED).stat().st_mtime_ns
        since = newest is not None and newest.stat().st_mtime_ns > told_at
    except (OSError, ValueError):
        return here
    return here if since else max(here, told)


def checkpoints_in(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first; a half-written one has a name of its own."""
    return sorted(folder.glob("step-*"), reverse=True)


def forget_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps: the training goes on from before them."""
    for path in checkpoints_in(folder):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        files = manifest["files"] if "files" in manifest else {"state.pt": manifest["sha256"]}
        made = dict(manifest.get("made_with", {}))
        return {"identity": manifest["identity"], "step": manifest["step"], "files": dict(files), "made_with": made}
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError("the manifest is missing or damaged", value=str(path), fix="delete this folder") from None


def _names(folder: Path) -> list[str]:
    """Names of the folder's files, but for the manifest."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return [name for name in names if name != MANIFEST]


def _synced(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    """Every file's hash by its name, where it is not `known`; each is on the disk then, under its name."""
    hashes = {}
    for name in _names(folder):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
        hashes[name] = known[name] if name in known else sha256_file(folder / name)
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        sync_folder(inner)
    return hashes


def _fresh(folder: Path, name: str) -> Path:
    """An empty folder to write into. Whatever a killed process left is removed: nobody else writes here."""
    for left in folder.glob(f"{_WRITING}*"):
        shutil.rmtree(left)
    temporary = folder / f"{_WRITING}{name}"
    temporary.mkdir(parents=True)
    return temporary


def _install(temporary: Path, final: Path) -> None:
    """Give the checkpoint its name; of the others those just before it stay, since a resume has refused later ones."""
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync_folder(final.parent)
    checkpoints = checkpoints_in(final.parent)
    place = checkpoints.index(final)
    for other in (*checkpoints[:place], *checkpoints[place + KEEP :]):
        shutil.rmtree(other)
