"""Copies of checkpoints on storage that outlives the machine."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import keep_newest
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint
from trainworthy.lifecycle.storage.state import sync_folder


def copy_checkpoint(path: Path, durable: Path) -> None:
    """Copy a complete checkpoint below `durable`: whole or not at all, read back against its hash. Raises OSError."""
    final, temporary = durable / path.name, durable / f".writing-{path.name}"
    for left in durable.glob(".writing-*"):
        shutil.rmtree(left)
    temporary.mkdir(parents=True)
    try:
        for name in ("state.pt", "manifest.json"):
            shutil.copyfile(path / name, temporary / name)
            with (temporary / name).open("rb") as file:
                os.fsync(file.fileno())
        verify_checkpoint(temporary)
    except CheckpointError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(errno.EIO, f"the copy differs: {error.problem}", str(final)) from None
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync_folder(durable)
    keep_newest(durable, final)
