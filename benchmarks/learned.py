"""The proof that a set-up is healthy: trained for its plan, it beats the best constant on held-out rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState


def trained(subject: Subject) -> TrainState:
    """Train for the whole plan. Raises ValueError on an alarm."""
    state = subject.state()
    torch.manual_seed(subject.recipe.seed)
    alarm = train(state, subject.training, subject.plan, subject.recipe, lambda state, update: False)
    if alarm is not None:
        raise ValueError(alarm.evidence)
    return state


def held_out_loss(subject: Subject, model: nn.Module) -> float:
    """Mean weighted loss of held-out rows in evaluation mode, in batches as trained; rows left over are dropped."""
    size = min(len(subject.held_out.targets), max(32, subject.batch_rows()))
    model.eval()
    with torch.no_grad():
        losses = [_losses(subject, model, subject.held_out.take(rows)) for rows in _batches(subject, size)]
    return float(torch.cat(losses).mean())


def constant_loss(subject: Subject, updates: int = 200) -> float:
    """Loss on held-out rows of the best output that does not look at the inputs, fitted to the training rows."""
    model = subject.model().eval()
    with torch.no_grad():
        constant = model(subject.training.take(torch.arange(4)).inputs)[:1].float() * 0
    constant = nn.Parameter(constant.clone())
    optimizer = torch.optim.Adam([constant], lr=0.1)

    def loss(data: TrainData) -> Tensor:
        outputs = constant.expand(len(data.targets), *constant.shape[1:])
        return _weighted(subject.recipe.loss_fn(outputs, data.targets), data).mean()

    some = subject.training.take(torch.randperm(len(subject.training.targets))[:400])
    for _ in range(updates):
        optimizer.zero_grad()
        loss(some).backward()
        optimizer.step()
    return float(loss(subject.held_out).detach())


def _losses(subject: Subject, model: nn.Module, data: TrainData) -> Tensor:
    return _weighted(subject.recipe.loss_fn(model(data.inputs), data.targets).float(), data)


def _weighted(losses: Tensor, data: TrainData) -> Tensor:
    return losses if data.weights is None else losses * data.weights


def _batches(subject: Subject, size: int) -> list[Tensor]:
    rows = torch.arange(len(subject.held_out.targets))
    return [part for part in rows.split(size) if len(part) == size]
