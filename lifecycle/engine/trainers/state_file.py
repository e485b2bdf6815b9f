"""The checkpoint of a hand-written loop: the state_dict of each of its parts, and the random number generators.

Plain values and tensors only, so that it is loaded without pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch

from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.engine.training.state import Stateful
from trainworthy.lifecycle.errors import CheckpointError

_KEEPS = "keep plain values and tensors in state_dict()"


def save_parts(path: Path, parts: Mapping[str, Stateful]) -> None:
    """Write the parts' state and the random numbers. Raises CheckpointError if it can't be written as a file."""
    saved = {"parts": {name: part.state_dict() for name, part in parts.items()}, "random": random_state()}
    try:
        torch.save(saved, path)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CheckpointError("the checkpoint holds more than plain values", value=str(error), fix=_KEEPS) from None


def load_parts(path: Path, parts: Mapping[str, Stateful]) -> None:
    """Load what save_parts wrote. Raises CheckpointError if it holds other parts, or more than plain values."""
    try:
        loaded = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        fix = "go on from the files in session.newest, as they were saved"
        raise CheckpointError(
            "the checkpoint was not written by session.checkpoint", value=str(path), fix=fix
        ) from None
    except pickle.UnpicklingError as error:
        raise CheckpointError("the checkpoint holds more than plain values", value=str(error), fix=_KEEPS) from None
    if loaded["parts"].keys() != parts.keys():
        told = f"{sorted(loaded['parts'])} instead of {sorted(parts)}"
        fix = "give resume and checkpoint the same parts, or delete this folder"
        raise CheckpointError("the checkpoint holds other parts than this training has", value=told, fix=fix)
    for name, part in parts.items():
        part.load_state_dict(loaded["parts"][name])
    restore_random(loaded["random"])
