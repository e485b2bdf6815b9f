"""Parameters that training moves without an optimizer: a slow copy of a trained part, as BYOL and mean teachers have.

Such a copy is more a buffer than a weight, so that requires_grad = False says all there is to say. What tells it from a
layer that was frozen by accident: updates move it, or it begins as a copy and lies off the loss's path.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from torch import nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, losses
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import TrainState

ROWS, UPDATES = 64, 2


def updates(subject: Subject, state: TrainState, count: int = UPDATES) -> Iterator[bool]:
    """Updates of a training on its first rows; whether loss and gradient are finite, so that each was made."""
    recipe = replace(subject.recipe, accumulate=1)
    rows = torch.arange(min(ROWS, subject.batch_rows(), len(subject.training.targets)), device=subject.device)
    state.model.train()
    for _ in range(count):
        loss, _, norm, *_ = train_step(state, subject.training, rows, recipe)
        state.step += 1
        yield math.isfinite(loss) and math.isfinite(norm)


def held_by(state: TrainState) -> set[int]:
    """Ids of the parameters that the optimizers hold."""
    return {id(p) for optimizer in state.optimizers for group in optimizer.param_groups for p in group["params"]}


def teachers(subject: Subject, names: Collection[str]) -> set[str]:
    """Of these parameters, which do not train, those of slow copies."""
    if not names:
        return set()
    state = subject.state()
    known, held = dict(state.model.named_parameters()), held_by(state)
    before = {name: known[name].detach().clone() for name in names}
    groups = {name: _frozen_part(state.model, name) for name in names}
    list(updates(subject, state))
    moved = {groups[n] for n in names if id(known[n]) not in held and not known[n].equal(before[n])}
    moved |= _copies(subject, set(groups.values()) - moved)
    return {name for name in names if groups[name] in moved}


def _frozen_part(model: nn.Module, name: str) -> str:
    """Path of the largest module around a parameter that does not train at all; the parameter's own if there is none.

    A copy's bias in front of a normalisation stays as its student's does, and belongs to the copy all the same.
    """
    part = name
    while "." in part:
        above = part.rpartition(".")[0]
        if any(parameter.requires_grad for parameter in model.get_submodule(above).parameters()):
            break
        part = above
    return part


def _copies(subject: Subject, parts: Collection[str]) -> set[str]:
    """Parts that begin equal to a trained one of the same form, and would get no gradient if they could."""
    model = subject.model()
    modules = dict(model.named_modules())
    alike = {
        part for part in parts if part in modules and any(_equal(modules[part], module) for module in modules.values())
    }
    if not alike:
        return set()
    for part in alike:
        modules[part].requires_grad_(True)
    row_losses = losses(model.train(subject.batch_rows() > 1), few(subject), subject.recipe.loss_fn).losses
    if row_losses.requires_grad:
        row_losses.mean().backward()
    return {part for part in alike if all(p.grad is None for p in modules[part].parameters())}


def _equal(frozen: nn.Module, other: nn.Module) -> bool:
    """Whether a trained module has the same parameters, and not only zeros and ones as all norms begin."""
    own, its = dict(frozen.named_parameters()), dict(other.named_parameters())
    same = own.keys() == its.keys() and all(p.requires_grad and p.equal(own[name]) for name, p in its.items())
    return same and any(bool((p != p.flatten()[0]).any()) for p in own.values() if p.numel())
