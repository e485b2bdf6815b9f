"""Weights that begin at zero and keep each other there: the gradient of a product of zeros is zero for ever.

One factor of zeros is healthy (LoRA's B, a last layer, a gate): its gradient is the other factor's. Layers that wait
behind one another begin after an update each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, losses
from trainworthy.lifecycle.engine.preflight.wiring.teachers import ROWS, updates
from trainworthy.lifecycle.engine.training.state import TrainState

MOST_TRIED = 8


def silent(parameters: dict[str, nn.Parameter]) -> set[str]:
    """Weights of at least two dimensions that are all zero."""
    return {name for name, p in parameters.items() if p.ndim > 1 and p.numel() and not bool((p != 0).any())}


def without_pull(parameters: dict[str, nn.Parameter], names: set[str]) -> set[str]:
    """Those whose last gradient is there and all zero."""
    gradients = {name: parameters[name].grad for name in names}
    return {name for name, one in gradients.items() if one is not None and not bool((one.to_dense() != 0).any())}


def keep_each_other(subject: Subject, state: TrainState, names: set[str]) -> list[str]:
    """Those of the silent weights of which one gets a gradient as soon as another is not zero; after one more update.

    A weight that is silent for another reason, such as an expert that no row chose, is not reached that way.
    """
    known = dict(state.model.named_parameters())
    if len(names) < 2 or not all(updates(subject, state, 1)):
        return []
    names = without_pull(known, names) & silent({name: known[name] for name in names})
    found = set[str]()
    for name in sorted(names)[:MOST_TRIED] if len(names) > 1 else ():
        reached = _reached_from(subject, state.model, known[name], {one: known[one] for one in names - {name}})
        found |= {name, *reached} if reached else set()
    return [name for name in known if name in found]


def _reached_from(subject: Subject, model: nn.Module, stirred: Tensor, others: dict[str, nn.Parameter]) -> set[str]:
    noise = torch.randn(stirred.shape, generator=torch.Generator().manual_seed(0)) * 0.1
    model.zero_grad(set_to_none=True)
    stirred.data.copy_(noise)
    found = losses(model, few(subject, min(ROWS, subject.batch_rows())), subject.recipe.loss_fn).losses
    if found.requires_grad:
        found.mean().backward()
    stirred.data.zero_()
    return others.keys() - without_pull(others, set(others)) - {n for n, p in others.items() if p.grad is None}
