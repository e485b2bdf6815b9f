"""Sanity of the declared learning rate: what a few updates at it do, and what all the planned ones can do.

A range of growing rates from a fresh network (Smith 2017, arXiv:1506.01186, section 3.3) gives loss against rate. While
rates are small, the loss depends on their sum alone: so the range also tells how far all planned updates will come.

Do all parameter groups move? One optimizer of two at a millionth of the other's rate leaves its part as it began.

A loss that falls by the other groups hides it, and each update is more than nothing. So a few updates at the peak rate
are measured, and told for all planned ones: no group can come further than that many times as far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.best_constant import constant_losses
from trainworthy.lifecycle.engine.outputs.pytree import flat
from trainworthy.lifecycle.engine.preflight.overfit.fit import slope_of
from trainworthy.lifecycle.engine.preflight.start.initial_loss import is_endless, lowest_constants
from trainworthy.lifecycle.engine.preflight.start.steady import steady
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.preflight.wiring.passes import fewer_of_places
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.focal import focal
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome, ProbeError
from trainworthy.lifecycle.gates.learning_rate import suggested_range

# Rows that the loss is read on, after each update; the updates themselves see batches of the planned size, up to this.
ROWS, FEWEST_ROWS, MOST_BATCH = 256, 16, 1024
# Updates: one to find the direction, those of the range, those at the peak. 41 in all, shared by several optimizers.
RANGE, AT_PEAK = 28, 12
# Of the range, from where an update lowers the loss by FIRST_GAIN of it along the first direction.
DECADES, FIRST_GAIN = 4.6, 1e-3
# The loss at the declared peak against where it starts, at its worst.
DIVERGED, UNSTEADY = 3.0, 1.5
# What all planned updates gain, against what the range gained at its best; a trained start may want to move little.
NO_PROGRESS, SLOW, NO_PROGRESS_TRAINED = 0.15, 0.2, 0.01
# A smaller gain, of the loss, may be noise of the batches.
LEAST_GAIN = 0.005
# Codes of what is told apart.
TOO_LARGE, TOO_SMALL, RISES = "rate_too_large", "rate_too_small", "no_matter_of_the_rate"
# Causes that no rate mends, each with its fix.
ASCENDS = (
    "an optimizer that goes to where the loss rises: maximize=True, a rate below zero, a step that adds the gradient",
    "let the optimizer minimise; a loss to be maximised is negated instead",
)
TURNED = (
    "the gradient is turned round: a sign in a hook, or in a backward pass of your own",
    "find where the sign changes: wiring.gradient_is_slope names the parameters, torch.autograd.gradcheck the Function",
)
NO_END = (
    "a loss of the wrong sign, or without what holds the outputs",
    "minimise the negative log likelihood, not the likelihood; start.initial_loss says how low constant outputs get",
)

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Direction:
    """The first update, for a rate of 1: the loss before it, what it gains to first order, and the momentum."""

    loss: float
    gain: float
    momentum: float


def rate_range(subject: Subject) -> Outcome:
    """The range, a short run at the declared peak, and the sum of the planned rates."""
    data = subject.training.take(spread_rows(subject.training, fewer_of_places(subject, ROWS, FEWEST_ROWS)))
    first = direction_of(subject, data)
    if -math.inf < first.gain < 0:
        evidence = f"the first update raises the loss from {first.loss:.4g}, by {-first.gain:.2g} for a rate of 1"
        return Outcome("insufficient", evidence, cause=ASCENDS[0], fix=ASCENDS[1])
    if not (0 < first.gain < math.inf and math.isfinite(first.loss)):
        return Outcome(
            "insufficient", f"no direction to try rates along: loss {first.loss:.4g}, slope {first.gain:.2g}"
        )
    level = _level(subject, data, first.loss)
    count, at_peak = (max(8, number // len(subject.state().optimizers)) for number in (RANGE, AT_PEAK))
    lowest = FIRST_GAIN * abs(first.loss or level) / first.gain
    rates = [lowest * 10 ** (DECADES * number / count) for number in range(count)]
    curve, _ = _losses(subject, data, rates, most=first.loss + DIVERGED * level)
    planned = [subject.recipe.learning_rate(step) for step in range(subject.plan.horizon_steps)]
    peak = max(planned)
    # A short warm-up, so that no planned one can be missed.
    tried = [peak * min(1.0, 3 * (n + 1) / at_peak) for n in range(at_peak)]
    run, state = _losses(subject, data, tried, most=math.inf)
    worst = max(loss if math.isfinite(loss) else math.inf for _, loss in run)
    outcome = _judged(subject, first, level, curve, sum(planned), peak, worst)
    if outcome.code == TOO_SMALL:
        # A batch moves the weights of its own rows' rare words or cells, and says little of the others': all planned
        # updates come further than those few. On all the rows that the loss is read on they move together.
        whole, _ = _losses(subject, data, rates, most=first.loss + DIVERGED * level, on=data)
        together = _judged(subject, first, level, whole, sum(planned), peak, worst)
        outcome = together if together.status == "pass" else outcome
    if outcome.status == "fail":
        return _not_of_the_rate(subject, data, outcome) or outcome
    return (outcome.status == "pass" and still_group(subject, state, sum(planned) / sum(tried))) or outcome


def _judged(
    subject: Subject, first: Direction, level: float, curve: Curve, total: float, peak: float, worst: float
) -> Outcome:
    low, high = suggested_range(curve)
    risen, share = 1 + (worst - first.loss) / level, _progress(first, curve, total)
    # Of 90 healthy trainings with a tuned rate 14 declare it outside of what the range suggests: so that is said where
    # the declared rate fails, and is no finding of its own.
    tried = f"; worth trying: {low:.2g} to {high:.2g}"
    evidence = f"declared {peak:.2g}; at the declared rate the loss goes from {first.loss:.4g} to at most {worst:.4g}"
    trained = subject.claims.start == "trained"
    measured: dict[str, Any] = {"observed": peak, "curve": _plain(curve)}
    if not risen < UNSTEADY:
        severity = "error" if not risen < DIVERGED else "warning"
        # The few updates of the range bear a rate that a whole training does not: of 2,000 texts the upper end of a
        # range, 0.16, ended at 0.61 nats, its middle at 0.49, and 0.003, below it, at 0.36.
        fix = f"declare a rate of about {math.sqrt(low * high):.2g}, or a lower one{tried}"
        return Outcome(
            "fail",
            f"{evidence}: too large",
            **measured,
            severity=severity,
            cause="a rate that is too large",
            fix=fix,
            code=TOO_LARGE,
        )
    if first.loss - min(loss for _, loss in curve) < LEAST_GAIN * level:
        return _flat(first, level, total, evidence, measured)
    evidence = f"{evidence}; all planned updates together lower it by {min(share, 1):.1%} of what the tried rates did"
    if share < (NO_PROGRESS_TRAINED if trained else SLOW):
        severity = "error" if trained or share < NO_PROGRESS else "warning"
        cause, fix = "a rate that is too small for the planned updates", f"declare a rate of about {high:.2g}{tried}"
        return Outcome(
            "fail", f"{evidence}: too small", **measured, severity=severity, cause=cause, fix=fix, code=TOO_SMALL
        )
    return Outcome("pass", evidence, **measured)


def _not_of_the_rate(subject: Subject, data: TrainData, outcome: Outcome) -> Outcome | None:
    """What is told in the place of a rate far off where no rate would help; None where one may.

    So it is where the loss rises along its own gradient, and where it has no lowest value that progress is a share of.
    """
    slope = slope_of(subject, subject.model(), data)
    if slope < 0:
        evidence = f"{outcome.evidence}; along its gradient it rises: the slope is {slope:.2f} of the gradient's size"
        return replace(outcome, evidence=evidence, cause=TURNED[0], fix=TURNED[1], code=RISES)
    if outcome.code == TOO_SMALL and _falls_without_end(subject, data):
        evidence = f"{outcome.evidence}; but this loss falls without end: no share of that says anything of a rate"
        return Outcome("insufficient", evidence, cause=NO_END[0], fix=NO_END[1], code=RISES)
    return None


def _falls_without_end(subject: Subject, data: TrainData) -> bool:
    """Whether constant outputs lower the loss without end; False where they say nothing of it."""
    if subject.claims.rows == "together" or subject.claims.labels == "unused":
        return False
    with torch.no_grad(), autocast(subject):
        outputs = subject.model().eval()(data.inputs)
    try:
        return is_endless(lowest_constants(subject, outputs, data.targets))
    except ProbeError:
        return False


def _flat(first: Direction, level: float, total: float, evidence: str, measured: dict[str, Any]) -> Outcome:
    """No rate gained anything: passed if the planned updates may, to first order."""
    gain = total * first.gain / (1 - first.momentum) / level
    if gain >= LEAST_GAIN:
        return Outcome("pass", f"{evidence}; so few updates gain nothing on these rows at any rate", **measured)
    return Outcome(
        "insufficient", f"{evidence}; no rate gained anything, and all planned updates gain {gain:.1g}", **measured
    )


def _progress(first: Direction, curve: Curve, total: float) -> float:
    """What planned rates of this sum gain, as a share of the range's best gain."""
    best = first.loss - min(loss for _, loss in curve)
    target = total / (1 - first.momentum)
    speed = summed = reached = 0.0
    for rate, loss in curve:
        speed = first.momentum * speed + 1
        before, summed = summed, summed + rate * speed
        gained = max(reached, first.loss - loss)
        if summed >= target:
            reached += (gained - reached) * (target - before) / (summed - before)
            break
        reached = gained
    return reached / best if best > 0 else 0.0


def direction_of(subject: Subject, data: TrainData) -> Direction:
    """One update on all these rows, as the optimizers make it."""
    state = subject.state()
    steady(state.model)
    loss = _loss(subject, state.model, data)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    _set_rate(state, 1.0)
    rows = torch.arange(len(data.targets), device=subject.device)
    norm = train_step(state, data, rows, subject.recipe).grad_norm
    # The loop has cut the gradients to the norm.
    cut = min(1.0, subject.recipe.clip_norm / max(norm, 1e-30))
    gain = sum(
        float(flat(new.grad).dot(flat(old - new.detach())))
        for old, new in zip(before, state.model.parameters(), strict=True)
        if new.grad is not None
    )
    groups = [group for optimizer in state.optimizers for group in optimizer.param_groups]
    momentum = max(float(group.get("momentum", 0.0)) for group in groups)
    return Direction(loss, gain / cut, momentum)


def _losses(
    subject: Subject, data: TrainData, rates: Sequence[float], most: float, on: TrainData | None = None
) -> tuple[Curve, TrainState]:
    """Rate and loss after each update, from a fresh state on, and the state after the last.

    Updates are made on batches of the training rows, or on all rows of `on`. Ends where the loss is above `most` or not
    finite.
    """
    state, curve = subject.state(), []
    steady(state.model)
    training = subject.training if on is None else on
    count = len(training.targets)
    size = min(subject.plan.batch_size, MOST_BATCH, count) if on is None else count
    order = torch.randperm(count, generator=torch.Generator().manual_seed(subject.recipe.seed)).to(subject.device)
    for number, rate in enumerate(rates):
        _set_rate(state, rate)
        rows = order[(torch.arange(size, device=subject.device) + number * size) % count]
        before, _, norm, *_ = train_step(state, training, rows, subject.recipe)
        state.step += 1
        loss = _loss(subject, state.model, data) if math.isfinite(before + norm) else math.inf
        curve.append((rate, loss))
        if not loss <= most:
            break
    return tuple(curve), state


def _set_rate(state: TrainState, rate: float) -> None:
    for optimizer in state.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]


def _loss(subject: Subject, model: nn.Module, data: TrainData) -> float:
    with torch.no_grad(), autocast(subject):
        losses = subject.recipe.loss_fn(model(data.inputs), data.targets).float()
    # As the updates count it: a rare class that counts more lets the plain loss rise while training goes well.
    losses = focal(losses, subject.recipe.focal_gamma) if subject.recipe.focal_gamma else losses
    return float((losses if data.weights is None else losses * data.weights).mean())


def _level(subject: Subject, data: TrainData, loss: float) -> float:
    """What a rise is measured by: the loss at the start, or a constant's where training goes on from less."""
    if subject.claims.start == "scratch" or subject.claims.rows == "together" or subject.claims.labels == "unused":
        return abs(loss)
    with torch.no_grad(), autocast(subject):
        outputs = subject.model().eval()(data.inputs)
    return max(abs(loss), abs(constant_losses(subject.recipe.loss_fn, outputs, data.targets).best))


def _plain(curve: Curve) -> Curve:
    """The finite points, in few digits."""
    return tuple((float(f"{rate:.3g}"), float(f"{loss:.4g}")) for rate, loss in curve if math.isfinite(loss))


CHECKS: tuple[Check[Any], ...] = (check_of("learning_rate.range", rate_range),)


# Of a group's own size, over all planned updates; and of what the group moves that moves most.
STILL, STILL_TRAINED, BEHIND = 1e-3, 1e-5, 1e-3


def still_group(subject: Subject, state: TrainState, more: float) -> Outcome | None:
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
    still = [names[id(parameter)] for parameter in groups[least]]
    shown = ", ".join(still[:3]) + (f" and {len(still) - 3} more" if len(still) > 3 else "")
    evidence = (
        f"{shown}: all planned updates together move them by at most {moved[least]:.1g} of their size; "
        f"the group that moves most, by {most:.1g}"
    )
    cause = "one of several optimizers or parameter groups has a rate that is far too small"
    fix = "raise that group's rate in build_optimizers; if it is to stay, requires_grad_(False) and preflight.frozen"
    return Outcome("fail", evidence, moved[least], limit, cause, fix)


def _pulled(group: list[Tensor]) -> bool:
    return any(p.grad is not None and bool((p.grad != 0).any()) for p in group)


def _moved(group: list[Tensor], names: dict[int, str], before: dict[str, Tensor]) -> float:
    """How far the group's parameters are from where they began, as a share of their size there."""
    known = [(parameter.detach().float(), before[names[id(parameter)]].float()) for parameter in group]
    far = torch.stack([(after - begun).square().sum() for after, begun in known]).sum().sqrt()
    return float(far / torch.stack([begun.square().sum() for _, begun in known]).sum().sqrt().clamp(min=1e-12))
