"""Checkpoints: atomic, hashed, and refused if they are damaged or foreign.

A checkpoint is a folder `step-<n>` with `state.pt` and, written last, `manifest.json` with the
SHA-256 of the state and the identity of the training. No format detects flipped bits by itself
(torch.save, safetensors and DCP load them in silence), so the hash is verified before every load.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.errors import CheckpointError
from lifecycle.identity import canonical_json, sha256_file
from lifecycle.jobs import CheckpointRef
from lifecycle.storage.state import sync_folder, write_atomic
from lifecycle.training.loop import TrainState

if TYPE_CHECKING:
    import torch

KEEP = 2


def save_checkpoint(folder: Path, identity: str, state: TrainState) -> CheckpointRef:
    """Write the state below `folder`, and keep the newest KEEP. Asserts that every parameter is finite."""
    assert parameters_finite(state.model), "weights that are not finite must never reach a checkpoint"
    return write_checkpoint(folder, identity, state_dict(state))


def write_checkpoint(folder: Path, identity: str, saved: dict[str, Any]) -> CheckpointRef:
    """Write what state_dict gave below `folder`, and keep the newest KEEP."""
    import torch

    final = folder / f"step-{saved['step']:08d}"
    temporary = folder / f".writing-{saved['step']:08d}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with (temporary / "state.pt").open("wb") as file:
        torch.save(saved, file)
        file.flush()
        os.fsync(file.fileno())
    manifest = {"identity": identity, "step": saved["step"], "sha256": sha256_file(temporary / "state.pt")}
    write_atomic(temporary / "manifest.json", canonical_json(manifest))
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync_folder(folder)
    for old in _checkpoints(folder)[KEEP:]:
        shutil.rmtree(old)
    return CheckpointRef(path=str(final), sha256=sha256_file(final / "manifest.json"))


def load_newest(folder: Path, identity: str, state: TrainState) -> tuple[bool, tuple[str, ...]]:
    """Load the newest sound checkpoint below `folder` into `state`; (False, ()) if there is none at all.

    A damaged one is skipped for the one before and named in the notes. Raises CheckpointError if
    all are damaged or foreign: a silent fresh start would hide the loss.
    """
    found, refused = _checkpoints(folder), []
    for path in found:
        try:
            load_checkpoint(path, identity, state)
        except CheckpointError as error:
            refused.append(f"{path.name}: {error.problem}")
        else:
            return True, tuple(f"skipped checkpoint {line}" for line in refused)
    if refused:
        raise CheckpointError(
            "every checkpoint is damaged or of another training",
            value=refused,
            fix=f"delete the folder {folder} to start afresh",
        )
    return False, ()


def load_checkpoint(path: Path, identity: str, state: TrainState, sha256: str | None = None) -> None:
    """Verify one checkpoint, then load it into `state` and the random number generators."""
    import torch

    if verify_checkpoint(path, sha256)["identity"] != identity:
        raise CheckpointError("the checkpoint belongs to another training", value=str(path), fix="delete this folder")
    # The hash proves that we wrote it; weights_only keeps pickled code out all the same.
    try:
        loaded = torch.load(path / "state.pt", weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError):
        raise CheckpointError(
            "the checkpoint holds no plain state", value=str(path), fix="delete this folder"
        ) from None
    if loaded.get("also", {}).keys() != state.also.keys():
        raise CheckpointError(
            "the checkpoint holds other parts than this training has",
            value=f"{sorted(loaded.get('also', {}))} instead of {sorted(state.also)}",
            fix="delete this folder",
        )
    state.model.load_state_dict(loaded["model"])
    for optimizer, saved in zip(state.optimizers, loaded["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    state.curve.load_state_dict(loaded["curve"])
    for name, part in state.also.items():
        part.load_state_dict(loaded["also"][name])
    state.step, state.prefix_sha256 = loaded["step"], loaded["prefix_sha256"]
    _restore_random(loaded["random"])


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


def parameters_finite(model: torch.nn.Module) -> bool:
    """True if every parameter is finite, by one fused norm."""
    import torch

    parameters = [parameter.detach() for parameter in model.parameters() if parameter.is_floating_point()]
    return not parameters or bool(torch.isfinite(torch.nn.utils.get_total_norm(parameters)))


def parameters_sha256(model: torch.nn.Module) -> str:
    """Hash of every parameter's and buffer's name and bytes: equal if and only if the weights are equal bit for bit."""
    import hashlib

    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        # As bytes, since numpy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def reached_step(out: Path) -> int:
    """The step of the newest checkpoint of a stage's folder, read from its name alone; 0 if there is none."""
    return max((int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")), default=0)


def _checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first; a half-written one has a name of its own."""
    return sorted(folder.glob("step-*"), reverse=True)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        return {key: manifest[key] for key in ("identity", "step", "sha256")}
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError("the manifest is missing or damaged", value=str(path), fix="delete this folder") from None


def state_dict(state: TrainState) -> dict[str, Any]:
    """All of a checkpoint: weights, optimizers, curve, step and the random number generators as they are now."""
    return {
        "model": state.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in state.optimizers],
        "curve": state.curve.state_dict(),
        "step": state.step,
        "prefix_sha256": state.prefix_sha256,
        "also": {name: part.state_dict() for name, part in state.also.items()},
        "random": _random_state(),
    }


def _random_state() -> dict[str, Any]:
    """Generators of torch, Python and numpy; numpy's as plain numbers, since weights_only refuses arrays."""
    import numpy as np
    import torch

    name, keys, *rest = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda,
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
    }


def _restore_random(saved: dict[str, Any]) -> None:
    import numpy as np
    import torch

    torch.set_rng_state(saved["torch"])
    if saved["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(saved["cuda"])
    version, internal, gauss = saved["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = saved["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
