"""The training loop: one screen, one update a step, one device read a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.monitors.non_finite import finite, not_finite_alarm
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import row_numbers
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.ranks.group import Ranks, Verdict, clipping
from trainworthy.lifecycle.engine.training.ranks.orders import PASS_OVER, UPDATE
from trainworthy.lifecycle.engine.training.state import (
    PASSED_OVER,
    Batches,
    Recipe,
    TrainData,
    TrainState,
    Update,
    whole,
)
from trainworthy.lifecycle.engine.training.techniques.focal import focal
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, DATA, SKIPPED
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.training import Precision


def train(
    state: TrainState,
    data: Batches,
    plan: Plan,
    recipe: Recipe,
    after_step: Callable[[TrainState, Update], bool],
    watch: Watch | None = None,
) -> Alarm | None:
    """Train from state.step to plan.last_step; `after_step` (a StepHooks, for one) may end it by returning True.

    Returns the alarm that ends it here, with the weights as they were before the bad step: loss or gradient is not
    finite, or what `watch` decided.
    """
    state.model.train()
    window, per_epoch = plan.window, plan.steps_per_epoch
    share = whole if state.ranks is None else state.ranks.share
    with closing(data.batches(plan, state.step, share)) as batches:
        for batch, rows in batches:
            rate = recipe.learning_rate(state.step) if watch is None else watch.rate(state, recipe)
            for optimizer in state.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["lr_scale"]
            state.clock.lap(DATA)
            update = train_step(state, batch, rows, recipe, watch)
            state.clock.lap(SKIPPED if update.skipped else COMPUTE)
            alarm = _not_finite(state, update) if watch is None else watch.after_update(state, update)
            if alarm is not None:
                return alarm
            state.step += 1
            if update.skipped:
                state.curve.pass_over(state.step, rate, window, per_epoch)
            else:
                scored = _scored(state, update, plan.counted(state.step - 1))
                state.curve.add(state.step, *scored, rate, window, per_epoch)
            if after_step(state, update):
                return None
    return None


def _scored(state: TrainState, update: Update, counted: Tensor | None) -> tuple[int, float, float]:
    """Rows of the batch that the curve counts, their mean loss and mean squared loss; `counted` None for all."""
    assert state.row_losses is not None
    if counted is None:
        return len(state.row_losses), update.loss, update.squared
    losses = state.row_losses[counted.to(state.row_losses.device)].double()
    total, squared = (losses.sum().item(), losses.dot(losses).item())
    return len(losses), total / max(1, len(losses)), squared / max(1, len(losses))


def train_step(
    state: TrainState, data: TrainData, rows: Tensor, recipe: Recipe, watch: Watch | None = None
) -> Update:  # fmt: skip
    """One update on the weighted loss, unless `watch` keeps it from being applied.

    The losses are those of the training forward, so each row of the first pass is scored by weights
    that have not seen it. If loss or gradient is not finite, weights and buffers are left as they were, and a scaler
    lowers its scale. Of several ranks this is the first's; ranks/follow.py has that of the others.
    """
    goes, ranks = watch is None or watch.before_update(state), state.ranks
    if ranks is not None:
        ranks.order(UPDATE if goes else PASS_OVER, state.step, rates_of(state))
    if not goes:
        state.row_losses = None
        return PASSED_OVER
    # The forward pass already changes buffers (the running means of batch norm), and would leave NaN in them.
    before = [buffer.clone() for buffer in state.buffers]
    losses, gradients = forward_backward(state, data, rows, recipe)
    state.row_losses = losses.each
    update, norms = _read(state, gradients, losses)
    if watch is not None and not watch.may_apply(state, update, len(losses.each), row_numbers(data, rows)):
        update = update._replace(skipped=True)
    applied, norm = finite(update.loss, update.grad_norm) and not update.skipped, None
    # Multiplying by 1 would read and write every gradient for nothing. 1e-6 is what torch adds to the norm.
    if applied and update.grad_norm + 1e-6 > 0.99 * recipe.clip_norm:
        norm = torch.linalg.vector_norm(torch.stack(norms))
    if ranks is not None:
        verdict = Verdict(applied, finite(update.grad_norm), None if norm is None else norm.item())
        norm = clipping(ranks.verdict(verdict).norm, data.device)
    if applied:
        apply_update(state, recipe, norm)
    else:
        restore_buffers(state, before)
    if state.scaler is not None:
        state.scaler.update(finite(update.grad_norm))
    return update


def rates_of(state: TrainState) -> tuple[float, ...]:
    """The learning rate of each parameter group."""
    return tuple(group["lr"] for optimizer in state.optimizers for group in optimizer.param_groups)


def forward_backward(state: TrainState, data: TrainData, rows: Tensor, recipe: Recipe) -> tuple[Losses, list[Tensor]]:
    """Forward and backward of this process's rows: the losses of the whole update, and its gradients in float32.

    Of several ranks the gradients are those of all rows in each, or its part of them, and the losses in the first.
    """
    ranks, scaler = state.ranks, state.scaler
    # What optimizer.zero_grad(set_to_none=True) does, without the 25 µs that its mark for the profiler takes.
    for parameter in state.with_gradients:
        parameter.grad = None
    # Parts of equal size, but for one row: chunk would leave a single row over, on which batch norm can't train. Ranks
    # that have shards of the model make each pass together, so that each has as many.
    fewest = len(rows) if state.shards is None or ranks is None else ranks.rows // ranks.size
    parts = rows.tensor_split(min(recipe.accumulate, fewest)) if recipe.accumulate > 1 else (rows,)
    scale = 1.0 if scaler is None else scaler.scale
    if ranks is None:
        generator = recipe.generator(state.step)
        passed = [backward(state.model, data, part, recipe, generator, of=len(rows), scale=scale) for part in parts]
    else:
        passed = _passed_by_ranks(ranks, state, data, parts, recipe, scale)
    losses = passed[0] if len(passed) == 1 else Losses.of(torch.cat([part.each for part in passed]))
    if ranks is not None:
        losses = Losses.of(ranks.gather(losses.each))
    gradients = [gradient for parameter in state.parameters if (gradient := parameter.grad) is not None]
    if state.shards is not None:
        gradients = state.shards.local(gradients)
    if scale != 1.0:
        torch._foreach_mul_(gradients, 1.0 / scale)  # pyright: ignore[reportPrivateImportUsage]
    return losses, gradients


def _passed_by_ranks(
    ranks: Ranks, state: TrainState, data: TrainData, parts: Sequence[Tensor], recipe: Recipe, scale: float
) -> list[Losses]:
    """The same of one of several ranks, which exchange gradients while they are computed."""
    generator = recipe.generator(state.step, ranks.rank)
    # The mean over ranks is what is exchanged, and each counts for its rows.
    scale *= ranks.size
    passed = []
    for number, part in enumerate(parts):
        with ranks.part(state.step, number, len(parts)):
            passed.append(backward(ranks.replica, data, part, recipe, generator, of=ranks.rows, scale=scale))
    ranks.reduce_the_rest()
    return passed


def apply_update(state: TrainState, recipe: Recipe, norm: Tensor | None) -> None:
    """Let the optimizers make the update, with gradients clipped by their `norm` where it is given."""
    if norm is not None and state.shards is not None:
        state.shards.clip(recipe.clip_norm, norm)
    elif norm is not None:
        torch.nn.utils.clip_grads_with_norm_(state.parameters, recipe.clip_norm, norm)
    for optimizer in state.optimizers:
        optimizer.step()


def restore_buffers(state: TrainState, before: Sequence[Tensor]) -> None:
    """The model's buffers as they were."""
    for buffer, saved in zip(state.buffers, before, strict=True):
        buffer.data.copy_(saved)


class Losses(NamedTuple):
    """Of a batch: each row's unweighted loss, `(N,)`, their mean, and how far each lies from it."""

    each: Tensor
    mean: Tensor
    deviations: Tensor

    @classmethod
    def of(cls, each: Tensor) -> Losses:
        mean = each.mean()
        return cls(each, mean, each - mean)


def _read(state: TrainState, gradients: list[Tensor], losses: Losses) -> tuple[Update, list[Tensor]]:
    """All that is read of an update, at once: on a GPU every .item() would wait for the device once more.

    Behind a backward pass, whatever runs is no longer in the processor's caches and takes three times as long as
    alone. So the losses go through the gradients' operation, and little else is done here.
    """
    try:
        *norms, deviation_norm = torch._foreach_norm([*gradients, losses.deviations])  # pyright: ignore[reportPrivateImportUsage]
        if state.shards is not None:
            norms = state.shards.norms(norms)
    except NotImplementedError:
        named = ", ".join(sparse_gradients(state.model))
        raise TrainingError(f"{named}: {SPARSE_PROBLEM}", fix=DENSE, code=SPARSE) from None
    together = [*norms, deviation_norm, losses.mean]
    # On a CPU there is nothing to wait for, and stacking takes 10 µs.
    *grad_norms, spread, loss = (
        [tensor.item() for tensor in together] if deviation_norm.is_cpu else torch.stack(together).tolist()
    )
    if not finite(spread) and finite(loss):
        # The square of a loss of 2e19 is too large for float32.
        spread = float(losses.deviations.double().norm())
    # From their spread: as a mean of squares, float32 would leave nothing of nearly equal losses' differences.
    squared = loss * loss + spread * spread / len(losses.deviations)
    total = math.hypot(*grad_norms)
    if len(grad_norms) < len(state.parameters):
        left = iter(grad_norms)
        grad_norms = [None if parameter.grad is None else next(left) for parameter in state.parameters]
    return Update(loss, squared, total, grad_norms), norms


# Codes of what keeps an update from being made.
ONE_LOSS_A_ROW, NO_GRADIENT, SPARSE = "one_loss_a_row", "no_gradient", "sparse_gradients"
SPARSE_PROBLEM = "the loop clips by the global norm, which sparse gradients do not have"
DENSE = "use sparse=False, and in build_optimizers AdamW or SGD in the place of SparseAdam"


def sparse_gradients(model: torch.nn.Module) -> list[str]:
    """Names of the parameters whose gradient is sparse."""
    return [name for name, p in model.named_parameters() if p.grad is not None and p.grad.is_sparse]


def backward(
    model: torch.nn.Module, data: TrainData, rows: Tensor, recipe: Recipe, generator: torch.Generator | None,
    of: int, scale: float = 1.0,
) -> Losses:  # fmt: skip
    """Forward and backward of a part of a batch of `of` rows: adds `scale` times its share of the gradients.

    Returns the unweighted losses, in float32 or wider.
    """
    losses = losses_of(model, data, rows, recipe, generator)
    if losses.shape != (len(rows),):
        raise TrainingError(
            f"loss_fn must give one loss a row, shape ({len(rows)},), got {tuple(losses.shape)}",
            code=ONE_LOSS_A_ROW,
            fix="leave out the mean or sum over rows: reduction='none'; of several outputs a row take .mean(dim=1)",
        )
    if not losses.requires_grad:
        raise TrainingError(
            "the loss has no gradient: no parameter that is trained reaches it",
            code=NO_GRADIENT,
            fix="take detach(), no_grad() and numpy out of forward and loss_fn, and let parameters have requires_grad",
        )
    losses, weighted = weighed(losses, None if data.weights is None else data.weights[rows], recipe)
    mean = losses.mean()
    trained = mean if weighted is losses else weighted.mean()
    share = scale * len(rows) / of
    each, middle = losses.detach(), mean.detach()
    # Before backward, since each operation behind it takes longer.
    unweighted = Losses(each, middle, each - middle)
    # Most updates are of one part, and an operation more shows in a small network's step.
    (trained if share == 1.0 else trained * share).backward()
    return unweighted


def losses_of(
    model: torch.nn.Module, data: TrainData, rows: Tensor, recipe: Recipe, generator: torch.Generator | None
) -> Tensor:
    """What loss_fn gives for these rows, augmented, in the recipe's precision."""
    inputs, targets = {name: tensor[rows] for name, tensor in data.inputs.items()}, data.targets[rows]
    if recipe.augment is not None:
        assert generator is not None
        inputs, targets = recipe.augment(inputs, targets, generator)
    with autocast(recipe.precision, rows.device.type):
        return recipe.loss_fn(model(inputs), targets)


def weighed(losses: Tensor, weights: Tensor | None, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """The losses in float32 or wider, and what each counts for in the update: the very same if nothing is declared."""
    if losses.element_size() < 4:
        losses = losses.float()
    counted = focal(losses, recipe.focal_gamma) if recipe.focal_gamma else losses
    return losses, counted if weights is None else counted * weights


def autocast(precision: Precision, device_type: str) -> AbstractContextManager[object]:
    """What forward and loss run in; in float32 nothing, since even a disabled autocast costs time."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device_type, torch.bfloat16 if precision == "bf16" else torch.float16)


def _not_finite(state: TrainState, update: Update) -> Alarm | None:
    """The alarm of a training that nothing watches."""
    scale_may_recover = state.scaler is not None and not state.scaler.exhausted
    if finite(update.loss, update.grad_norm) or (finite(update.loss) and scale_may_recover):
        return None
    return not_finite_alarm(state.step, update.loss, update.grad_norm)
