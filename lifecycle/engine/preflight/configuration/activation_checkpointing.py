"""Does activation checkpointing reach the modules it names, and leave the update as it is?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS
from trainworthy.lifecycle.engine.training.loop import backward
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.engine.training.techniques.recompute import recomputed
from trainworthy.lifecycle.gates.check import Found

# Both passes compute the same in the same order. Beyond the last digits of float32 it is no rounding.
ALIKE = 1e-4
NAMED = 5


def recomputes_the_same(subject: Subject) -> Found:
    """Gradients, and buffers afterwards, of one backward pass with and without; and which modules it did not meet."""
    if not subject.activation_checkpointing:
        return Found("not_applicable", "training.activation_checkpointing names no module")
    model, plain, drawn = subject.state().model, subject.model(), random_state()
    met = _counting(model)
    found = _backward(subject, model)
    restore_random(drawn)
    wanted = _backward(subject, plain)
    names = recomputed(model)
    idle = [name for name, one in names.items() if not met[id(one.module)]]
    if idle:
        told = f"no effect on {', '.join(idle[:NAMED])}{' …' * (len(idle) > NAMED)}: forward is never called there"
        fix = "name modules that are called, such as the blocks in a list and not the list: blocks.*"
        return Found("fail", told, len(idle), 0, cause="a container, or a module used by another method", fix=fix)
    apart = {name: _apart(found[name], tensor) for name, tensor in wanted.items()}
    worst = max(apart, key=apart.__getitem__)
    if apart[worst] > ALIKE:
        return Found("fail", f"{worst} differs by {apart[worst]:.2g} of its size", apart[worst], ALIKE)
    return Found("pass", f"{len(names)} modules are recomputed; gradients and buffers stay as they are",
                 apart[worst], ALIKE)  # fmt: skip


def _counting(model: nn.Module) -> dict[int, int]:
    """Calls of each module's own forward from now on, by id."""
    met: dict[int, int] = {}

    def counted(one: Any) -> Any:
        plain, met[id(one.module)] = one.plain, 0

        def call(*args: Any, **kwargs: Any) -> Any:
            met[id(one.module)] += 1
            return plain(*args, **kwargs)

        return call

    for one in recomputed(model).values():
        one.plain = counted(one)
    return met


def _backward(subject: Subject, model: nn.Module) -> dict[str, Tensor]:
    """Gradients by parameter, then parameters and buffers, after the backward pass of a few rows."""
    rows = torch.arange(min(FEW_ROWS, len(subject.training.targets)), device=subject.device)
    generator = torch.Generator().manual_seed(subject.recipe.seed)
    backward(model.train(), subject.training, rows, subject.recipe, generator, of=len(rows))
    gradients = {f"the gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    return gradients | dict(model.named_parameters()) | dict(model.named_buffers())


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the tensor's largest value."""
    one, other = one.detach().double(), other.detach().double()
    if not one.numel():
        return 0.0
    return float((one - other).abs().max() / other.abs().max().clamp_min(1e-12))
