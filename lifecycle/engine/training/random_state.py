"""The random number generators: as plain values, as a checkpoint holds them, and put back after a look aside.

A look at a model puts back what else it would change: modes and buffers.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


def torch_states(device: str) -> dict[str, Tensor]:
    """torch's generators alone, that of the device too: 1.2 µs on a CPU, so that it can be kept before every update."""
    states = {"torch": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state()} if device == "cuda" else states


def random_state() -> dict[str, Any]:
    """Generators of torch, Python and numpy; numpy's as plain numbers, since weights_only refuses arrays.

    CUDA's are left out until CUDA is in use: nothing was drawn from them then, and to ask would start it.
    """
    name, keys, *rest = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda,
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
    }


def restore_random(saved: dict[str, Any]) -> None:
    """Set them as random_state found them; CUDA's where it is in use."""
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] and torch.cuda.is_initialized():
        torch.cuda.set_rng_state_all(saved["cuda"])
    version, internal, gauss = saved["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = saved["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))


def seed_torch(seed: int) -> None:
    """torch.manual_seed, which formats and keeps the call stack for each kind of device that is not there: 1 ms a call.

    Preflight asks for it some 300 times. Without an accelerator the CPU's generator is the only one.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def seed_all(seed: int) -> None:
    """Seed the generators of torch, Python and numpy."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    seed_torch(seed)


@contextlib.contextmanager
def random_kept() -> Iterator[None]:
    """Whatever is drawn meanwhile, the generators are as they were afterwards."""
    drawn = random_state()
    try:
        yield
    finally:
        restore_random(drawn)


@contextlib.contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode; then each module's own mode, the buffers and the random numbers are as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    try:
        with random_kept():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for buffer, before in buffers:
            buffer.data.copy_(before)
