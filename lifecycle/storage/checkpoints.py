"""Checkpoints as they lie in a folder: which there are, and whether one is what was written; nothing is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.jobs import TrainJob


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}"


def verify_checkpoint(path: Path, sha256: str | None = None) -> dict[str, Any]:
    """The manifest, if the state's bytes are the ones it names and its own hash is `sha256`. Raises CheckpointError."""
    manifest = _manifest(path)
    if sha256 is not None and sha256_file(path / "manifest.json") != sha256:
        raise CheckpointError(
            "the checkpoint is not the one on record", value=str(path), fix="run the stage before again"
        )
    if not (path / "state.pt").is_file() or sha256_file(path / "state.pt") != manifest["sha256"]:
        raise CheckpointError("the checkpoint's bytes were changed", value=str(path), fix="delete this folder")
    return manifest


def reached_step(out: Path) -> int:
    """The step of the newest checkpoint of a stage's folder, read from its name alone; 0 if there is none."""
    return max((int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")), default=0)


def checkpoints_in(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first; a half-written one has a name of its own."""
    return sorted(folder.glob("step-*"), reverse=True)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        made = dict(manifest.get("made_with", {}))
        return {**{key: manifest[key] for key in ("identity", "step", "sha256")}, "made_with": made}
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError("the manifest is missing or damaged", value=str(path), fix="delete this folder") from None


def durable_folder(job: TrainJob) -> Path | None:
    """Where copies of the checkpoints go; None if nothing outlives the machine."""
    durable = job.interruptions.durable
    # The training's id, and its own folder below it: another seed of the stage has another.
    return Path(durable, job.identity.partition(":")[0], Path(job.out).name) if durable else None
