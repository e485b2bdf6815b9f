"""Does a row's loss depend on its own row alone? By gradients, and by other rows in the other rows' places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import at_rest, few, largest, losses, other_rows, stirred
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome

# Share of what a row's own values do. Healthy networks are at 0, or at 1e-7 where terms cancel; a mean over eight
# rows is at 0.05 and more.
BY_GRADIENT, BY_VALUE = 1e-4, 1e-3


def rows_apart(subject: Subject) -> Outcome:
    """In evaluation and in training mode. What goes through normalisation alone is healthy, and told."""
    data = few(subject)
    if subject.claims.rows == "together":
        return Outcome("not_applicable", "declared: a row's loss depends on the batch's other rows")
    if len(data.targets) < 2:
        return Outcome("not_applicable", "there is one row")
    model, noted = stirred(subject.model()), []
    # A training of single rows has no other rows in its batches.
    for mode in ("evaluation", "training") if subject.batch_rows() > 1 else ("evaluation",):
        model.train(mode == "training")
        if not _repeats(subject, model, data):
            evidence = f"in {mode} mode equal passes give other losses, or none that are finite"
            return Outcome("insufficient", evidence, required=True, cause="a state that forward keeps between calls")
        plain, description = _mixed(subject, model, data, nullcontext())
        if not plain:
            continue
        still, still_description = _mixed(subject, model, data, at_rest(model, data, subject.recipe.loss_fn))
        if still:
            evidence = f"in {mode} mode {still_description or description}"
            return Outcome("fail", evidence, round(still, 6), BY_VALUE)
        noted.append(mode)
    evidence = f"each of {len(data.targets)} rows' losses depends on its own row"
    return Outcome("pass", f"{evidence}, but for batch statistics in {' and '.join(noted)} mode" if noted else evidence)


def _repeats(subject: Subject, model: nn.Module, data: TrainData) -> bool:
    """Whether two passes with equal random numbers and buffers give the same; else nothing can be compared."""
    with torch.no_grad():
        first, other = (losses(model, data, subject.recipe.loss_fn).losses for _ in range(2))
    return bool(first.isfinite().all()) and largest(other - first) <= 1e-5 * largest(first)


def _mixed(
    subject: Subject, model: nn.Module, data: TrainData, around: AbstractContextManager[None]
) -> tuple[float, str]:
    """How much a row's loss depends on other rows, as a share of its own row's part, and the words; 0 if not."""
    with around:
        share, description = _by_value(subject, model, data)
        if share > BY_VALUE:
            return share, description
        share, description = _by_gradient(subject, model, data)
        return (share, description) if share > BY_GRADIENT else (0.0, "")


def _by_value(subject: Subject, model: nn.Module, data: TrainData) -> tuple[float, str]:
    """Other rows are put beside the kept ones, whose losses must stay."""
    loss_fn, strangers, worst = subject.recipe.loss_fn, other_rows(subject, len(data.targets)), 0.0
    with torch.no_grad():
        plain = losses(model, data, loss_fn)
        for kept in _parts(plain.losses):
            mixed = losses(model, _merged(data, strangers, kept), loss_fn)
            if not mixed.random_state.equal(plain.random_state):
                # Random numbers drawn by what the rows hold differ for every row; nothing can be compared.
                continue
            changed = mixed.losses - plain.losses
            foreign, own = largest(changed[kept]), largest(changed[~kept])
            if foreign > 1e-6 * largest(plain.losses):
                worst = max(worst, foreign / max(own, 1e-12))
    return worst, f"a row's loss changes with other rows beside it, by {worst:.2g} times what its own row does"


def _by_gradient(subject: Subject, model: nn.Module, data: TrainData) -> tuple[float, str]:
    """The kept rows' losses must have no gradient at the other rows' floating inputs."""
    leaves = {n: t.clone().requires_grad_() for n, t in data.inputs.items() if t.is_floating_point()}
    row_losses = losses(model, TrainData({**data.inputs, **leaves}, data.targets), subject.recipe.loss_fn).losses
    weights = torch.rand(len(row_losses), generator=torch.Generator().manual_seed(0)).to(row_losses.device) + 0.5
    worst, where = 0.0, ""
    for kept in _parts(row_losses) if leaves and row_losses.requires_grad else ():
        try:
            gradients = torch.autograd.grad(
                (row_losses * weights)[kept].sum(), list(leaves.values()), retain_graph=True, allow_unused=True
            )
        except RuntimeError:
            # Reentrant checkpoints give no gradient of inputs; values have been compared.
            return 0.0, ""
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None and largest(gradient[~kept]) > worst * max(largest(gradient[kept]), 1e-30):
                worst, where = largest(gradient[~kept]) / max(largest(gradient[kept]), 1e-30), name
    return worst, f"a row's loss has a gradient at other rows of {where}, {worst:.2g} times that at its own"


def _parts(row_losses: Tensor) -> Iterator[Tensor]:
    """Which rows are kept, (N,) bool: every second row, then half of them, and their complements."""
    number = torch.arange(len(row_losses), device=row_losses.device)
    for kept in (number % 2 == 0, number < (len(row_losses) + 1) // 2):
        yield kept
        yield ~kept


def _merged(data: TrainData, strangers: TrainData, kept: Tensor) -> TrainData:
    def merge(own: Tensor, other: Tensor) -> Tensor:
        return own.where(kept.reshape(-1, *[1] * (own.ndim - 1)), other)

    inputs = {name: merge(tensor, strangers.inputs[name]) for name, tensor in data.inputs.items()}
    return TrainData(inputs, merge(data.targets, strangers.targets))
