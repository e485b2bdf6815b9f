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
from trainworthy.lifecycle.gates.check import Outcome

# Both passes compute the same in the same order. Beyond the last digits of float32 it is no rounding.
ALIKE = 1e-4
NAMED = 5


def recomputes_the_same(subject: Subject) -> Outcome:
    """Gradients, and buffers afterwards, of one backward pass with and without; and which modules it did not meet."""
    if not subject.activation_checkpointing:
        return Outcome("not_applicable", "training.activation_checkpointing names no module")
    model, plain, drawn = subject.state().model, subject.model(), random_state()
    met = _counting(model)
    checkpointed = _backward(subject, model)
    restore_random(drawn)
    reference = _backward(subject, plain)
    names = recomputed(model)
    idle = [name for name, wrapper in names.items() if not met[id(wrapper.module)]]
    if idle:
        evidence = f"no effect on {', '.join(idle[:NAMED])}{' …' * (len(idle) > NAMED)}: forward is never called there"
        fix = "name modules that are called, such as the blocks in a list and not the list: blocks.*"
        return Outcome("fail", evidence, len(idle), 0, cause="a container, or a module used by another method", fix=fix)
    differences = {name: _relative_difference(checkpointed[name], tensor) for name, tensor in reference.items()}
    worst = max(differences, key=differences.__getitem__)
    if differences[worst] > ALIKE:
        return Outcome("fail", f"{worst} differs by {differences[worst]:.2g} of its size", differences[worst], ALIKE)
    return Outcome("pass", f"{len(names)} modules are recomputed; gradients and buffers stay as they are",
                   differences[worst], ALIKE)  # fmt: skip


def _counting(model: nn.Module) -> dict[int, int]:
    """Calls of each module's own forward from now on, by id."""
    met: dict[int, int] = {}

    def counted(wrapper: Any) -> Any:
        plain, met[id(wrapper.module)] = wrapper.plain, 0

        def call(*args: Any, **kwargs: Any) -> Any:
            met[id(wrapper.module)] += 1
            return plain(*args, **kwargs)

        return call

    for wrapper in recomputed(model).values():
        wrapper.plain = counted(wrapper)
    return met


def _backward(subject: Subject, model: nn.Module) -> dict[str, Tensor]:
    """Gradients by parameter, then parameters and buffers, after the backward pass of a few rows."""
    rows = torch.arange(min(FEW_ROWS, len(subject.training.targets)), device=subject.device)
    generator = torch.Generator().manual_seed(subject.recipe.seed)
    backward(model.train(), subject.training, rows, subject.recipe, generator, of=len(rows))
    gradients = {f"the gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    return gradients | dict(model.named_parameters()) | dict(model.named_buffers())


def _relative_difference(tensor: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the tensor's largest value."""
    tensor, other = tensor.detach().double(), other.detach().double()
    if not tensor.numel():
        return 0.0
    return float((tensor - other).abs().max() / other.abs().max().clamp_min(1e-12))
