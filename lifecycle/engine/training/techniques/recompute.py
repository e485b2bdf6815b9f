"""Activation checkpointing: named modules keep their inputs alone, and compute the rest again in the backward pass.

Declared and not part of model.py, so that the artifact and the names of the weights are those of the plain network. The
second pass meets what the first one met: the random numbers of torch, Python and numpy, and the module's buffers, which
are put back after it. So gradients and running means are those of a training without, bit for bit on a CPU.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainworthy.lifecycle.errors import TrainingError, did_you_mean


class Recomputed:
    """In the place of a module's forward. Without gradients, and while torch exports or compiles, it is the plain one.

    A deep copy belongs to the copied module.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.plain = module, module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.plain(*args, **kwargs)
        again = partial(_contexts, self.module)
        # Its own keeping of random numbers knows torch's alone, and of a GPU only if a tensor is no keyword.
        return checkpoint(
            partial(self.plain, **kwargs), *args, use_reentrant=False, preserve_rng_state=False, context_fn=again
        )


def checkpoint_activations(model: nn.Module, patterns: Sequence[str]) -> None:
    """Recompute each module whose name matches a pattern. A `*` stands for any part of one name between dots.

    Raises TrainingError, which tells every pattern that matches no module.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    chosen = {pattern: [name for name in modules if _matches(name, pattern)] for pattern in patterns}
    unknown = [pattern for pattern, names in chosen.items() if not names]
    if unknown:
        raise _unknown(unknown, modules)
    for name in dict.fromkeys(name for names in chosen.values() for name in names):
        vars(modules[name])["forward"] = Recomputed(modules[name])


def recomputed(model: nn.Module) -> dict[str, Recomputed]:
    """What takes the place of a forward, by the module's name."""
    forwards = {name: vars(module).get("forward") for name, module in model.named_modules()}
    return {name: forward for name, forward in forwards.items() if isinstance(forward, Recomputed)}


def _matches(name: str, pattern: str) -> bool:
    names, patterns = name.split("."), pattern.split(".")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))


def _unknown(patterns: Sequence[str], modules: dict[str, nn.Module]) -> TrainingError:
    known = {re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in modules}
    suggestions = "; ".join(f"{pattern}: {did_you_mean(pattern, known)}" for pattern in patterns)
    return TrainingError(
        "training.activation_checkpointing names modules that the model does not have",
        value=list(patterns),
        fix=f"name modules as model.named_modules() does, * for one part of a name. {suggestions}",
    )


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Around the first pass, nothing; around the second one, what the first one met."""
    met = _met_now(module)

    @contextlib.contextmanager
    def as_before() -> Iterator[None]:
        now = _met_now(module)
        met()
        try:
            yield
        finally:
            now()

    return contextlib.nullcontext(), as_before()


def _met_now(module: nn.Module) -> Callable[[], None]:
    """What puts random numbers and the module's buffers back as they are now."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()
    # A buffer may be written, or another tensor put in its place.
    buffers = [
        (part, name, buffer, buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]

    def put_back() -> None:
        torch.set_rng_state(drawn[0])
        torch.cuda.set_rng_state_all(cuda)
        random.setstate(drawn[1])
        np.random.set_state(drawn[2])
        for part, name, buffer, value in buffers:
            # By .data: autograd has kept the buffer for its backward, and would refuse a newer version.
            buffer.data.copy_(value)
            part._buffers[name] = buffer

    return put_back
