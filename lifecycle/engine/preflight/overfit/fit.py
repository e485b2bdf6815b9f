"""A short training on a few rows, as the full stage would train on them: the same updates, at the declared peak rate.

A batch is not accumulated of parts: it is no larger than one, and its parts would be too small for batch norm.

Judged in evaluation mode. Where a network's evaluation lags behind (running means of batch norm after few updates, or
that never move), the loss with the batch's own statistics counts as well, if it is the lower one.

Do the updates follow the loss's own slope? Where a part of it is detached by design, the loss need not fall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from trainworthy.lifecycle.engine.outputs.directional_derivative import in_float64, slope_over_gradient
from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import Outputs, network_outputs
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.throughput.work import Work, counted
from trainworthy.lifecycle.engine.preflight.wiring.passes import losses
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.monitors.game import is_game
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.plan import stage_rows, step_seed

BATCH_ROWS = 32
# Some networks diverge at their peak rate without a start below it.
WARM_UP = 20
# A network of which an update is much work is judged by as many updates as are so much work, in floating-point
# operations: 15 s of a core of 2e10 a second, on which starting any operation takes as long as 1e5 of them. Counted, so
# that no verdict depends on the machine.
MOST_WORK, A_START = 3e11, 1e5
# Work that is not torch's is not counted: then processor time ends the fit, and what it shows stops nothing.
CPU_SECONDS = 120.0
# Predictions that are drawn are judged by the mean of a few.
DRAWS = 8
# More label values than this are no classes, and rows are drawn without regard to them.
MOST_CLASSES = 64


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained state, its mean loss on the rows, and how many updates it took.

    `ended` says what ended it before it was enough: so much work, or so much processor time.
    """

    state: TrainState
    loss: float
    updates: int
    ended: Literal["", "work", "processor_time"] = ""


def fit(
    subject: Subject,
    data: TrainData,
    batches: Sequence[Tensor],
    enough: Callable[[float, int], bool],
    every: int = 10,
    measured: Subject | None = None,
    cpu: Callable[[], float] = time.process_time,
    times: Callable[[int], float] = lambda done: 1.0,
) -> Fit:
    """Train on the batches, over and over, until `enough` of loss and updates; asked every so many updates.

    `times` says, of the number of an update from 1 on, what its rate is multiplied by.

    The loss is that of `measured`, whose loss function may hold what the subject's does not (auxiliary.py); without it
    the loss is not measured, and stays infinite.
    """
    state, rate = subject.state(), peak_rate(subject)
    # A focal loss is least at other outputs than the plain one, by which a fit is judged.
    recipe = replace(subject.recipe, accumulate=1, focal_gamma=0.0)
    began, most, loss, state.step = cpu(), 1, float("inf"), 0
    for done in count(1):
        state.model.train()
        for optimizer in state.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * times(done) * group["lr_scale"] * min(1.0, done / WARM_UP)
        update = partial(train_step, state, data, batches[(done - 1) % len(batches)], recipe)
        if done == 1:
            most = updates_within(counted(update))
        else:
            update()
        state.step += 1
        ended = "work" if done >= most else "processor_time" if cpu() - began > CPU_SECONDS else ""
        if done % every == 0 or ended:
            loss = loss if measured is None else mean_loss(measured, state.model, data, batches)
            if enough(loss, done):
                return Fit(state, loss, done)
            if ended:
                return Fit(state, loss, done, ended)
    raise AssertionError("unreachable")


def updates_within(work: Work) -> int:
    """How many updates of so much work each are tried, at the most."""
    return max(1, int(MOST_WORK / max(1.0, work.flops + A_START * work.operations)))


def peak_rate(subject: Subject) -> float:
    """The highest rate of the schedule, of up to 200 steps of it."""
    steps = subject.plan.horizon_steps
    return max(subject.recipe.learning_rate(step) for step in range(0, steps, max(1, steps // 200)))


def planned_updates(subject: Subject) -> float:
    """How many updates at the peak rate go as far as all planned ones: the sum of their rates over it; 0 at no rate."""
    steps, peak = subject.plan.horizon_steps, peak_rate(subject)
    some = range(0, steps, max(1, steps // 200))
    mean = sum(subject.recipe.learning_rate(step) for step in some) / len(some)
    return steps * mean / peak if peak > 0 else 0.0


def mean_loss(subject: Subject, model: nn.Module, data: TrainData, batches: Sequence[Tensor]) -> float:
    """The lower one of the losses in evaluation mode and with the batches' own statistics."""
    losses = [float(judged(subject, model, data, batches).losses().mean())]
    if any(True for _ in model.buffers()):
        with batch_statistics(model):
            losses.append(float(outputs_of(subject, model, data, batches).losses().mean()))
    return min((loss for loss in losses if loss == loss), default=float("nan"))


def judged(subject: Subject, model: nn.Module, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """Outputs in evaluation mode; where they are drawn, the mean of DRAWS."""
    model.eval()
    drawn = [outputs_of(subject, model, data, batches)]
    if subject.claims.evaluation == "deterministic":
        return drawn[0]
    drawn += [outputs_of(subject, model, data, batches) for _ in range(DRAWS - 1)]
    leaves = []
    for several in zip(*(outputs.leaves for outputs in drawn), strict=True):
        mean = list(several[0])
        for place in drawn[0].free:
            mean[place] = sum(batch_leaves[place] for batch_leaves in several) / DRAWS
        leaves.append(mean)
    return replace(drawn[0], leaves=tuple(leaves))


def outputs_of(subject: Subject, model: nn.Module, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """Outputs without gradients, in the mode that the model is in."""
    with torch.no_grad():
        return network_outputs(subject, model, data, batches)


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """The model in training mode but for its dropout; what it changes in its buffers is put back."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.data.copy_(value)


def full_batches(subject: Subject, data: TrainData, most: int, batch_rows: int, seed: int = 1) -> list[Tensor]:
    """At most `most` batches of row numbers, equal in size, drawn by class where the targets are such.

    All rows in one batch where there are fewer. No last batch of one row: batch norm cannot train on it.
    """
    targets, generator = data.targets, torch.Generator().manual_seed(step_seed(subject.recipe.seed, seed))
    rows = len(targets)
    chosen = torch.randperm(rows, generator=generator)[: most * batch_rows]
    if targets.dim() == 1 and len(targets.unique()) <= MOST_CLASSES and rows > len(chosen):
        drawn = torch.from_numpy(stage_rows(targets.cpu().numpy(), len(chosen) / rows, subject.recipe.seed + seed))
        chosen = drawn[torch.randperm(len(drawn), generator=generator)][: most * batch_rows]
    size = min(batch_rows, len(chosen))
    rows_used = chosen[: len(chosen) // size * size].to(targets.device)
    return list(rows_used.split(size))


# By which share the slope may differ from the gradient. Measured: autoencoders, flows and masked models 1e-4, energies
# of samples that Langevin's dynamics makes 0.1 to 0.5, an adversary 0.1 to 0.8.
SLOPE_TOLERANCE = 0.01


def by_a_game(
    subject: Subject, fitted: Fit, data: TrainData, before: float, least: float, evidence: str
) -> Outcome | None:
    """Where a loss that has moved by `least` from `before` need not fall further, else None. Ends the fit's model.

    One that rose need not either, if the network works against itself: some of its gradients are turned round.
    """
    if fitted.loss > before + least:
        return against_itself(subject, fitted, evidence)
    share = slope_of(subject, fitted.state.model, data) if fitted.loss < before - least else 1.0
    if not abs(share - 1) > SLOPE_TOLERANCE:
        return None
    statement = (
        f"{evidence}; its slope along the gradient is {share:.2f} of the gradient's size: a part of it is detached"
    )
    cause = "a loss of samples that the network makes itself, or of an adversary, whose value tells no progress"
    fix = "judge it by what it is for; if it is meant: preflight.not_applicable: {overfit.ten_batches: a reason}"
    return Outcome("insufficient", statement, share, SLOPE_TOLERANCE, cause, fix)


def against_itself(subject: Subject, fitted: Fit, evidence: str) -> Outcome | None:
    """Insufficient where some parameters learn to raise what others learn to lower; None where not."""
    if not is_game(subject.model(), subject.training, subject.recipe):
        return None
    statement = f"{evidence}; some gradients are turned round, as an adversary's are: the loss tells no progress"
    cause = "an adversary, or a backward pass of your own with the wrong sign"
    fix = "if it is meant: preflight.not_applicable: {overfit.ten_batches: a reason}"
    return Outcome("insufficient", statement, fitted.loss, None, cause, fix)


def slope_of(subject: Subject, model: nn.Module, data: TrainData) -> float:
    """The loss's slope on these rows over its gradient. The model is in float64 and in training mode afterwards; 1 if
    it takes no float64."""
    model = model.double().train()
    data = TrainData(in_float64(data.inputs), in_float64(data.targets))
    try:
        return slope_over_gradient(model, lambda: losses(model, data, subject.recipe.loss_fn).losses.mean())
    except RuntimeError:
        return 1.0
