"""The state of our own loop as a checkpoint: written, verified, loaded, and refused if it is damaged or foreign.

No format detects flipped bits by itself (torch.save, safetensors and DCP load them in silence), so the hash is verified
before every load.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.checkpoints.made_with import made_with, resumed_elsewhere
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.jobs import CheckpointRef
from trainworthy.lifecycle.protocol.training_figures import MadeBy
from trainworthy.lifecycle.storage.checkpoints import (
    MANIFEST,
    checkpoint_path,
    verify_checkpoint,
    writing,
)
from trainworthy.lifecycle.storage.durable.store import CheckpointStore, newest_sound

STATE = "state.pt"
# Parts of a state by name that change no update.
WATCHING = {"progressive", "monitors"}


class WeightsNotFiniteError(Exception):
    """Weights that are not finite must never reach a checkpoint."""


def save_checkpoint(folder: Path, identity: str, state: TrainState) -> CheckpointRef:
    """Write the state below `folder`, and keep the newest KEEP. Raises WeightsNotFiniteError."""
    refuse_not_finite(state)
    return write_checkpoint(folder, identity, state_dict(state))


def write_checkpoint(folder: Path, identity: str, saved: dict[str, Any]) -> CheckpointRef:
    """Write what state_dict gave below `folder`, and keep the newest KEEP. Raises OSError with the disk's own errno."""
    with writing(folder, saved["step"], identity, saved["made_with"]) as draft:
        draft.sha256[STATE] = _write_state(draft.path / STATE, saved)
    final = checkpoint_path(folder, saved["step"])
    return CheckpointRef(path=str(final), sha256=sha256_file(final / MANIFEST))


class _Written:
    """A file that hashes what is written, and keeps the disk's error: torch.save turns it into a RuntimeError."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self.error = file, hashlib.sha256(), None

    def write(self, content: memoryview) -> int:
        self.digest.update(content)
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _write_state(path: Path, saved: dict[str, Any]) -> str:
    """Write the state; the hash of what was meant to be written."""
    with path.open("wb") as file:
        written = _Written(file)
        try:
            torch.save(saved, cast(BinaryIO, written))
        except RuntimeError:
            if written.error is not None:
                raise written.error from None
            raise
    return written.digest.hexdigest()


def load_newest(
    stores: Sequence[CheckpointStore], identity: str, state: TrainState
) -> tuple[bool, tuple[str, ...]]:  # fmt: skip
    """Load the newest sound checkpoint of the stores into `state`; (False, ()) if there is none at all.

    Copies count as those in the first store do. A damaged one is skipped for the one before and named
    in the notes, which also tell of another torch or machine. Raises CheckpointError if all are damaged or
    foreign: a silent fresh start would hide the loss.
    """
    newest = newest_sound(stores, lambda path: load_checkpoint(path, identity, state))
    if newest is None:
        return False, ()
    _, elsewhere, notes = newest
    return True, (*notes, *elsewhere)


def load_checkpoint(path: Path, identity: str, state: TrainState, sha256: str | None = None) -> tuple[str, ...]:
    """Verify one checkpoint, then load it into `state` and the random number generators.

    Returns a note if it was made with another torch, machine or number of threads.
    """
    manifest = verify_checkpoint(path, sha256, identity)
    # The hash proves that we wrote it; weights_only keeps pickled code out all the same.
    try:
        loaded = torch.load(path / STATE, weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError):
        raise CheckpointError(
            "the checkpoint holds no plain state", value=str(path), fix="delete this folder"
        ) from None
    held, own_parts = loaded.get("also", {}), state.also
    # What only watches may be missing or too much: it changes no update, and settings outside the identity decide it.
    if held.keys() - WATCHING != own_parts.keys() - WATCHING:
        raise CheckpointError(
            "the checkpoint holds other parts than this training has",
            value=f"{sorted(held)} instead of {sorted(own_parts)}",
            fix="delete this folder",
        )
    if state.shards is not None:
        state.shards.take(loaded["model"], loaded["optimizers"])
    else:
        state.model.load_state_dict(loaded["model"])
        for optimizer, saved in zip(state.optimizers, loaded["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    state.curve.load_state_dict(loaded["curve"])
    for name in held.keys() & own_parts.keys():
        own_parts[name].load_state_dict(held[name])
    state.step, state.prefix_sha256 = loaded["step"], loaded["prefix_sha256"]
    # One of before this was kept was made as it says itself, as far as it knows.
    by = loaded.get("made_by") or [(1, int(manifest["made_with"].get("processes", 1)))]
    state.made_by = tuple(MadeBy(first_step=step, processes=processes) for step, processes in by)
    restore_random(loaded["random"])
    return resumed_elsewhere(manifest["made_with"], _made_with(state))


def parameters_finite(model: torch.nn.Module) -> bool:
    """True if every parameter is finite, by one fused norm."""
    parameters = [parameter.detach() for parameter in model.parameters() if parameter.is_floating_point()]
    return not parameters or bool(torch.isfinite(torch.nn.utils.get_total_norm(parameters)))


def refuse_not_finite(state: TrainState) -> None:
    """Raises WeightsNotFiniteError."""
    if not (parameters_finite(state.model) if state.shards is None else not state.shards.not_finite()):
        raise WeightsNotFiniteError("weights that are not finite must never reach a checkpoint")


def parameters_sha256(model: torch.nn.Module) -> str:
    """Hash of every parameter's and buffer's name and bytes: equal if and only if the weights are equal bit for bit."""
    return weights_sha256(model.state_dict())


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """The same of a model's state dict."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        # As bytes, since numpy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def state_dict(state: TrainState) -> dict[str, Any]:
    """All of a checkpoint: weights, optimizers, curve, step and the random number generators as they are now."""
    if state.shards is None:
        weights, optimizers = state.model.state_dict(), [optimizer.state_dict() for optimizer in state.optimizers]
    else:
        weights, optimizers = state.shards.states()
    return {
        "model": weights,
        "optimizers": optimizers,
        "curve": state.curve.state_dict(),
        "step": state.step,
        "prefix_sha256": state.prefix_sha256,
        "also": {name: part.state_dict() for name, part in state.also.items()},
        "random": random_state(),
        "made_with": _made_with(state),
        "made_by": [(part.first_step, part.processes) for part in state.made_by],
    }


def _made_with(state: TrainState) -> dict[str, str]:
    processes = 1 if state.ranks is None else state.ranks.size
    return made_with(_device(state.model), processes, "none" if state.shards is None else "fsdp")


def _device(model: torch.nn.Module) -> str:
    return next((parameter.device.type for parameter in model.parameters()), "cpu")
