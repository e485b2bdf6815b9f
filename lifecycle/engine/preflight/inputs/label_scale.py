"""Can the planned updates reach the labels of a regression?"""

from __future__ import annotations

import math

import torch

from trainworthy.lifecycle.engine.outputs.pytree import flat
from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import ROWS, ask, rows_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome

# Labels so much larger than all that the planned updates can add to the outputs; and too far off to be noise.
OUT_OF_REACH, FAR = 10.0, 30.0


def labels_scaled(subject: Subject) -> Outcome:
    """Labels of a regression against what all planned updates can add to the outputs, each of them pushing one way."""
    probe = ask(subject)
    outputs, targets = probe.outputs, probe.targets.float()
    if not isinstance(outputs, torch.Tensor) or outputs.numel() != targets.numel() or not _is_regression(subject):
        return Outcome("not_applicable", "the labels are classes or probabilities, or no outputs stand beside them")
    missing = float((targets - outputs.reshape(targets.shape)).square().mean().sqrt())
    met = probe.loss_at(targets.reshape(outputs.shape), probe.targets)
    if met is None or float(met.mean()) >= float(probe.losses.mean()):
        return Outcome("pass", "the loss has its own scale: it is not least where outputs equal labels")
    reach = _reach(subject)
    # The ratio alone: a distance over so few rows tells of the largest label.
    times = missing / max(reach, 1e-30)
    evidence = f"labels lie {times:.3g} times as far from the fresh outputs as all planned updates can move them"
    return Outcome("fail" if missing > FAR and times > OUT_OF_REACH else "pass", evidence, times, OUT_OF_REACH)


def _is_regression(subject: Subject) -> bool:
    targets = subject.training.targets
    inside = bool(((targets >= 0) & (targets <= 1)).all())
    return targets.is_floating_point() and not inside and bool(targets.isfinite().all())


def _reach(subject: Subject) -> float:
    """What the plan's updates add to a mean output to first order: each parameter by its rate, one way, every step.

    SGD moves along the clipped gradient instead of by its signs.
    """
    state = subject.state()
    inputs, _ = rows_of(subject.training, spread_rows(subject.training, ROWS), subject.device)
    outputs = state.model.eval()(inputs)
    outputs.float().mean().backward()
    gradients = [flat(p.grad) for p in state.model.parameters() if p.grad is not None]
    if not gradients:
        return math.inf
    every = torch.cat(gradients)
    signs = not any(isinstance(optimizer, torch.optim.SGD) for optimizer in state.optimizers)
    step = float(every.abs().sum()) if signs else float(every.norm()) * subject.recipe.clip_norm * 10
    horizon = subject.plan.horizon_steps
    shown = range(0, horizon, max(1, horizon // 200))
    rates = [subject.recipe.learning_rate(update) for update in shown]
    return step * horizon * sum(rates) / len(rates)


CHECKS = (check_of("inputs.labels_scaled", labels_scaled),)
