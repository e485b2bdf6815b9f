"""Packs an incident into a folder that replays on another machine alone.

It holds the checkpoint, the tensors of every batch from there to the incident, the use case's Python code and the state
of its preprocessing. What must not travel is refused by name: tensors of sensitive features, and code or
hyperparameters that look as if they held a secret.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from trainworthy.lifecycle.engine.incidents.scene import Scene, is_portable, open_scene
from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.identity import canonical_json, python_sources
from trainworthy.lifecycle.incidents.incident import Incident, read_incident, write_manifest
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, Interruptions, PackJob
from trainworthy.lifecycle.protocol.results import PackResult
from trainworthy.lifecycle.storage.state import write_atomic

# Checkpoint and batches together: what can be sent to somebody.
MOST_BYTES = 1_000_000_000
_SECRET = re.compile(r"password|passwd|secret|token|api_?key|credential|private_key", re.IGNORECASE)
# Private keys, keys of cloud accounts, addresses with a password.
_SECRET_VALUE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|://[^\s/:@]+:[^\s/@]+@")


def pack(job: PackJob) -> PackResult:
    """Write the folder, whole or not at all. Raises IncidentError."""
    folder, target = Path(job.incident), Path(job.target)
    incident = read_incident(folder)
    _refuse(incident, folder, target)
    scene = open_scene(folder, incident, Path(job.out))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        checkpoint = _copy_checkpoint(incident, scene, temporary)
        batches = _write_batches(incident, scene, temporary)
        left_out = _copy_code(scene.folder, temporary / "code")
        write_atomic(temporary / "preprocessing.json", canonical_json(scene.preprocessing))
        write_atomic(temporary / "incident.json", _without_places(incident, checkpoint).model_dump_json().encode())
        # Rows of the data are in it: whoever adds all that is new to a repository must not add these.
        write_atomic(temporary / ".gitignore", b"*\n")
        write_manifest(temporary)
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return PackResult(folder=str(target), bytes=_size(target), updates=batches, left_out=left_out)


def _refuse(incident: Incident, folder: Path, target: Path) -> None:
    """Raises IncidentError if the folder can't be written, or must not be."""
    if is_portable(folder):
        raise IncidentError("this incident is portable already", value=str(folder), fix="copy the folder as it is")
    if incident.job.trainer is not None:
        fix = "copy its checkpoint and run the script from there; trainworthy replay says what is known of the step"
        raise IncidentError(f"{incident.job.trainer} makes its updates itself: no folder replays them", fix=fix)
    if target.exists():
        raise IncidentError("the folder to write is there already", value=str(target), fix="name another with --out")
    sensitive = incident.job.rows.sensitive_features
    if sensitive:
        raise IncidentError(
            "tensors of sensitive features do not leave this machine",
            value=list(sensitive),
            fix="replay it here; or, if they are not sensitive, say so in contract.yaml and train again",
        )
    secrets = [*_secrets_of_code(Path(incident.job.use_case_folder)), *_secrets_of(incident.job.hyperparameters)]
    if secrets:
        fix = "read it from the environment in place of the code, and take it out of the history"
        raise IncidentError("this looks like a secret, and would travel with the incident", value=secrets, fix=fix)


def _secrets_of_code(folder: Path) -> Iterator[str]:
    """Lines that give a name like `token` a text, and texts that look like a key; never the text itself."""
    for name, path in python_sources(folder).items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            texts: list[tuple[str, ast.expr]] = []
            if isinstance(node, ast.Assign):
                texts = [(ast.unparse(target), node.value) for target in node.targets]
            elif isinstance(node, ast.keyword):
                texts = [(node.arg or "", node.value)]
            elif isinstance(node, ast.Dict):
                texts = [(ast.unparse(key), value) for key, value in zip(node.keys, node.values, strict=True) if key]
            for said, value in texts:
                if _SECRET.search(said) and isinstance(value, ast.Constant) and isinstance(value.value, str | bytes):
                    yield f"{name}:{value.lineno}: {said}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SECRET_VALUE.search(node.value):
                yield f"{name}:{node.lineno}"


def _secrets_of(values: Mapping[str, Any], prefix: str = "hyperparameters") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _secrets_of(value, f"{prefix}.{name}")
        elif isinstance(value, str) and (_SECRET.search(name) or _SECRET_VALUE.search(value)):
            yield f"{prefix}.{name}"


def _copy_checkpoint(incident: Incident, scene: Scene, folder: Path) -> CheckpointRef | None:
    """The checkpoint that the scene was opened from, None if it begins with the stage."""
    checkpoint = incident.checkpoint
    if checkpoint is None or scene.checkpoint is None:
        return None
    place = Path("checkpoint", scene.checkpoint.name)
    (folder / place).mkdir(parents=True)
    for name in ("state.pt", "manifest.json"):
        shutil.copyfile(scene.checkpoint / name, folder / place / name)
    _require_size(folder)
    return CheckpointRef(path=place.as_posix(), sha256=checkpoint.sha256)


def _write_batches(incident: Incident, scene: Scene, folder: Path) -> int:
    """The tensors of every batch up to the incident's, as the loop is given them; how many."""
    plan, steps = scene.plan.model_copy(update={"last_step": incident.step + 1}), {}
    size, first = _size(folder), scene.state.step
    with closing(scene.data.batches(plan, first)) as batches:
        for step, (data, rows) in enumerate(batches, start=first):
            taken = data.take(rows).to("cpu")
            numbers = plan.batch(step).tolist()
            steps[step] = {
                "inputs": taken.inputs, "targets": taken.targets, "weights": taken.weights, "rows": numbers,
            }  # fmt: skip
            size += sum(tensor.nbytes for tensor in (*taken.inputs.values(), taken.targets))
            _require(size, incident.step - first + 1)
    torch.save(steps, folder / "batches.pt")
    return len(steps)


def _copy_code(source: Path, target: Path) -> tuple[str, ...]:
    """The Python files, and nothing else of the use case's folder; the names of what is left out."""
    for name, path in python_sources(source).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
    other_files = (path for path in sorted(source.rglob("*")) if path.is_file() and path.suffix not in (".py", ".pyc"))
    return tuple(path.relative_to(source).as_posix() for path in other_files)


def _without_places(incident: Incident, checkpoint: CheckpointRef | None) -> Incident:
    """The incident without this machine's paths: its folder holds what they named."""
    job = incident.job.model_copy(
        update={
            "use_case_folder": "code",
            "rows": incident.job.rows.model_copy(update={"files_root": ""}),
            **dict.fromkeys(("out", "training_file", "validation_file", "calibration_file"), ""),
            **dict.fromkeys(("start", "kept_features", "ends_at")),
            "interruptions": Interruptions(),
        }
    )
    file = incident.rows_file.model_copy(update={"path": ""})
    alarm = incident.alarm.model_copy(update={"incident": None})
    return incident.model_copy(update={"job": job, "rows_file": file, "alarm": alarm, "checkpoint": checkpoint})


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _require_size(folder: Path) -> None:
    _require(_size(folder), 0)


def _require(size: int, updates: int) -> None:
    if size > MOST_BYTES:
        raise IncidentError(
            f"the portable incident would be larger than {MOST_BYTES / 1e6:,.0f} MB",
            value=f"checkpoint and batches of {updates} updates",
            fix="write checkpoints more often (training.checkpoint_every_steps), or replay it where it was made",
        )
