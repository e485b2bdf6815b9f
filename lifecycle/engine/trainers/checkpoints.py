"""Checkpoints whose files a training script writes itself: whole or not at all, hashed, the newest sound one offered.

What lies in them is the script's: nothing of it is read here, so that no pickle is loaded. A folder `step-<n>` has the
script's files in `files`, what the handle itself goes on with in `session.json`, and, last, `manifest.json` with
every file's SHA-256 and the identity of the training.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.cost.checkpoint_interval import FIRST_CHECKPOINT_SECONDS, interval_seconds, longest_seconds
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import keep_newest
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import Interruptions
from trainworthy.lifecycle.storage.checkpoints import checkpoint_path, checkpoints_in
from trainworthy.lifecycle.storage.state import sync_folder, write_atomic


class ScriptCheckpoints:
    """The checkpoints of one training in `folder`, with copies in `durable` if there is such a folder."""

    def __init__(
        self, folder: Path, identity: str, machine: Interruptions, every_steps: int | None, durable: Path | None = None
    ) -> None:
        self.folder, self.identity, self.durable = folder, identity, durable
        self._machine, self._every_steps = machine, every_steps
        self._newest_at = time.monotonic()
        self.written, self.seconds, self.step = 0, 0.0, 0
        self.notes: tuple[str, ...] = ()

    def due(self, step: int) -> bool:
        """True if one of this step would pay; one of the same step is never due again."""
        if step == self.step:
            return False
        waited = time.monotonic() - self._newest_at
        longest = longest_seconds(self.seconds, self._machine)
        if self._every_steps is not None:
            return step % self._every_steps == 0 or (self._machine.spot and waited >= longest)
        # The training waits for all of a write.
        return waited >= (
            interval_seconds(self.seconds, 0.0, self._machine) if self.written else FIRST_CHECKPOINT_SECONDS
        )

    @contextmanager
    def writing(self, step: int, session: dict[str, Any]) -> Iterator[Path]:
        """A folder for the script's files; a checkpoint of the step once the block has ended without an error."""
        started = time.monotonic()
        final, temporary = checkpoint_path(self.folder, step), self.folder / f".writing-step-{step:08d}"
        for left in self.folder.glob(".writing-*"):
            shutil.rmtree(left)
        (temporary / "files").mkdir(parents=True)
        try:
            yield temporary / "files"
            if not any(temporary.rglob("files/**/*")):
                raise CheckpointError("the trainer wrote no file into its checkpoint", fix="save into the given folder")
            (temporary / "session.json").write_bytes(canonical_json(session))
            hashes = _hashes(temporary)
            write_atomic(
                temporary / "manifest.json", canonical_json({"identity": self.identity, "step": step, "files": hashes})
            )
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _install(temporary, final)
        if self.durable is not None:
            _copy(final, self.durable)
        self.step, self.written, self._newest_at = step, self.written + 1, time.monotonic()
        self.seconds = self._newest_at - started

    def newest(self) -> Path | None:
        """The newest sound one, None if there is none at all; notes tell of those that were passed over.

        Raises CheckpointError if all are damaged or foreign: a silent fresh start would hide the loss.
        """
        folders = [self.folder, *([self.durable] if self.durable else [])]
        found = sorted((path for each in folders for path in checkpoints_in(each)), key=lambda p: p.name, reverse=True)
        refused = []
        for path in found:
            try:
                self.step = verify(path, self.identity)
            except CheckpointError as error:
                refused.append(f"{path.name}: {error.problem}")
            else:
                copy = (f"resumed from the copy {path}",) if path.parent != self.folder else ()
                self.notes = (*(f"skipped checkpoint {line}" for line in refused), *copy)
                return path
        if refused:
            fix = f"delete the folder {' and '.join(map(str, folders))} to start afresh"
            raise CheckpointError("every checkpoint is damaged or of another training", value=refused, fix=fix)
        return None

    def told(self) -> tuple[str, ...]:
        """How many there were, in words; none if none was written."""
        return (f"the trainer wrote {self.written} checkpoints",) if self.written else ()


def verify(path: Path, identity: str) -> int:
    """The step of a checkpoint whose files are the ones that its manifest names. Raises CheckpointError."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        step, files, found = int(manifest["step"]), dict(manifest["files"]), manifest["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError("the manifest is missing or damaged", value=str(path), fix="delete this folder") from None
    if found != identity:
        raise CheckpointError("the checkpoint belongs to another training", value=str(path), fix="delete this folder")
    if _hashes(path) != files:
        raise CheckpointError("the checkpoint's bytes were changed", value=str(path), fix="delete this folder")
    return step


def _hashes(folder: Path) -> dict[str, str]:
    """Every file's hash by its name in the folder; each is on the disk then."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / "manifest.json"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        found[path.relative_to(folder).as_posix()] = sha256_file(path)
    return found


def _install(temporary: Path, final: Path) -> None:
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync_folder(final.parent)
    keep_newest(final.parent, final)


def _copy(path: Path, durable: Path) -> None:
    """Copy to durable storage, whole or not at all; a storage that is away is told, and the next copy tried again."""
    temporary = durable / f".writing-{path.name}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(path, temporary)
        if _hashes(temporary) != _hashes(path):
            raise OSError(errno.EIO, "the copy differs", str(durable / path.name))
        _install(temporary, durable / path.name)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        say(f"{path.name} could not be copied to {durable}: {error}; the next one will be tried")
