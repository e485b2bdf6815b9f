"""Do all parameter groups move? One optimizer of two at a millionth of the other's rate leaves its part as it began.

A loss that falls by the other groups hides it, and each update is more than nothing. So a few updates at the peak rate
are measured, and told for all planned ones: no group can come further than that many times as far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.gates.check import Found

# Of a group's own size, over all planned updates; and of what the group moves that moves most.
STILL, STILL_TRAINED, BEHIND = 1e-3, 1e-5, 1e-3


def still_group(subject: Subject, state: TrainState, more: float) -> Found | None:
    """What is wrong if one of several groups hardly moves; `more` are all planned rates over those of the updates.

    `state` is that after the updates, from the subject's own start.
    """
    before = {name: parameter.detach() for name, parameter in subject.model().named_parameters()}
    names = {id(parameter): name for name, parameter in state.model.named_parameters()}
    groups = [group["params"] for optimizer in state.optimizers for group in optimizer.param_groups]
    # What gets no gradient is told by wiring.gradients.
    # Single numbers, as a temperature, may be meant to move slowly, and none of them is a part of the network.
    parts = {n: group for n, group in enumerate(groups) if _pulled(group) and any(p.numel() > 1 for p in group)}
    moved = {n: more * _moved(group, names, before) for n, group in parts.items()}
    if len(moved) < 2:
        return None
    least, most = min(moved, key=lambda n: moved[n]), max(moved.values())
    limit = STILL_TRAINED if subject.claims.start == "trained" else STILL
    if moved[least] >= limit or moved[least] >= BEHIND * most:
        return None
    told = [names[id(parameter)] for parameter in groups[least]]
    shown = ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
    evidence = (
        f"{shown}: all planned updates together move them by at most {moved[least]:.1g} of their size; "
        f"the group that moves most, by {most:.1g}"
    )
    cause = "one of several optimizers or parameter groups has a rate that is far too small"
    fix = "raise that group's rate in build_optimizers; if it is to stay, requires_grad_(False) and preflight.frozen"
    return Found("fail", evidence, moved[least], limit, cause, fix)


def _pulled(group: list[Tensor]) -> bool:
    return any(p.grad is not None and bool((p.grad != 0).any()) for p in group)


def _moved(group: list[Tensor], names: dict[int, str], before: dict[str, Tensor]) -> float:
    """How far the group's parameters are from where they began, as a share of their size there."""
    known = [(parameter.detach().float(), before[names[id(parameter)]].float()) for parameter in group]
    far = torch.stack([(after - begun).square().sum() for after, begun in known]).sum().sqrt()
    return float(far / torch.stack([begun.square().sum() for _, begun in known]).sum().sqrt().clamp(min=1e-12))
