"""The answer to a job, as it lies in the job's folder: whose it is, and whether the files that it names are whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.artifact import verify_artifact
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import job_sha256, sha256_file
from trainworthy.lifecycle.protocol.jobs import (
    AnyJob,
)
from trainworthy.lifecycle.protocol.results import AnyResult, PredictResult, ResultFile, TrainResult
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint

# Beside the answer: which modules of Trainworthy the job loaded, for code_identity.py.
MODULES = "modules.json"


def read_result(out: Path, job: AnyJob) -> AnyResult | None:
    """The answer to exactly this job, if it lies in the folder."""
    try:
        stored = ResultFile.model_validate_json((out / "result.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return stored.result if stored.job_sha256 == job_sha256(job) else None


def read_modules(out: Path) -> list[str] | None:
    """Modules of ours that the worker had loaded when it answered; None if it did not say."""
    try:
        return [str(name) for name in json.loads((out / MODULES).read_bytes())]
    except (OSError, ValueError, TypeError):
        return None


def files_are_whole(result: AnyResult) -> bool:
    """True if the files that an answer names are still what was written; else its job must be done again."""
    match result:
        case TrainResult():
            checkpoint = result.checkpoint is None or _verifies(
                verify_checkpoint, result.checkpoint.path, result.checkpoint.sha256
            )
            artifact = result.artifact is None or _verifies(
                verify_artifact, result.artifact, result.artifact_sha256 or ""
            )
            return checkpoint and artifact
        case PredictResult():
            files = [file for file in (result.predictions, result.reference) if file is not None]
            return all(Path(file.path).is_file() and sha256_file(Path(file.path)) == file.sha256 for file in files)
        case _:
            return True


def _ended_by_budget(result: AnyResult) -> bool:
    """True for a training that goes on where a larger budget lets it."""
    return isinstance(result, TrainResult) and result.ended == "budget"


def _verifies(verify: Callable[[Path, str], object], path: str, sha256: str) -> bool:
    try:
        verify(Path(path), sha256)
    except CheckpointError:
        return False
    return True


def has_answer(job: AnyJob, out: Path) -> bool:
    """True if the folder has a whole answer to exactly this job, which no larger budget would go on from."""
    earlier = read_result(out, job)
    return not (
        earlier is None or read_modules(out) is None or _ended_by_budget(earlier) or not files_are_whole(earlier)
    )
