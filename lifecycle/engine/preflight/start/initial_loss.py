"""The untrained network's loss against what constant outputs get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.best_constant import ConstantLosses, constant_losses
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.preflight.wiring.output_range import reach
from trainworthy.lifecycle.engine.preflight.wiring.passes import fewer_of_places, stirred
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Outcome, ProbeError

ROWS, FEWEST_ROWS = 128, 8
# In so many more rows, of so many numbers together, one is looked for whose loss outweighs all others.
MANY_ROWS, MANY_NUMBERS = 4096, 2**22
# Floats of more values are measured.
MOST_CLASSES = 20
# In units of the larger of the two constant losses.
TOO_HIGH, HIGH = 6.0, 3.0
# In units of the best constant's loss.
TOO_LOW, LOW = 0.4, 0.7
# Of a squared error: the targets' mean lies 10 standard deviations from zero, or their standard deviation is 100, and
# 100 times that of fresh outputs.
FAR_TARGETS, WIDE_TARGETS = 100.0, 1e4
# Of a constant's loss: what it gains by growing without end.
UNBOUNDED = -100.0
# A trained start with a loss of this share of the constant's or more has learned nothing of these labels.
UNTRAINED = 0.9
# Correlation of fresh outputs with a number of the inputs, from which on it is what they pass on.
PASSED_ON = 0.95
# Codes of what is told apart from a loss that is merely too high.
NO_LOWER_BOUND, NOT_LOADED = "no_lower_bound", "weights_not_loaded"
NOT_NORMALISED, LABEL_IN_INPUT = "targets_not_normalised", "label_in_input"
FEW_ROWS = "few_rows_far_off"


def initial_loss(subject: Subject) -> Outcome:
    """Near what a constant gets, in evaluation and in training mode."""
    if subject.claims.rows == "together" or subject.claims.labels == "unused":
        claim = "rows: together" if subject.claims.rows == "together" else "labels: unused"
        return Outcome("not_applicable", f"claimed {claim}: no constant output tells what to expect")
    data = subject.training.take(spread_rows(subject.training, fewer_of_places(subject, ROWS, FEWEST_ROWS)))
    losses, outputs = _losses(subject, data)
    if not all(math.isfinite(loss) for loss in losses.values()):
        return Outcome("fail", f"the first loss is not finite: {_mean_losses(losses)}", str(losses), cause=NOT_FINITE)
    constant = lowest_constants(subject, outputs, data.targets)
    said = (
        f"{_mean_losses(losses)}; the best constant output gets {constant.best:.4g}, "
        f"a neutral one {constant.neutral:.4g}"
    )
    if is_endless(constant):
        cause = "a loss without a lower bound: its sign is wrong, or what holds the outputs is missing"
        fix = "minimise the negative log likelihood, not the likelihood"
        return Outcome(
            "fail", f"{said}, and less the larger it grows", constant.best, 0.0, cause, fix, code=NO_LOWER_BOUND
        )
    if constant.best <= 0 or not math.isfinite(constant.neutral):
        no_zero = Outcome("not_applicable", f"{said}: this loss has no zero to measure from")
        return _of_many_rows(subject, min(losses.values()), constant) or no_zero
    outcome = _judged(subject, losses, constant, said, data.targets)
    if outcome.status != "fail" and (of_few := _of_many_rows(subject, min(losses.values()), constant)) is not None:
        return of_few
    if outcome.status == "insufficient" and _is_real(data.targets):
        passed_on = _passed_on(data.inputs, outputs)
        return Outcome("pass", f"{outcome.evidence}: {passed_on}", outcome.observed, TOO_LOW) if passed_on else outcome
    return outcome


def _of_many_rows(subject: Subject, first: float, constant: ConstantLosses) -> Outcome | None:
    """What is wrong if many more rows have a loss that is too high, by few of them that the first ones missed."""
    numbers = sum(tensor[:1].numel() for tensor in subject.training.inputs.values())
    rows = max(ROWS, min(MANY_ROWS, MANY_NUMBERS // max(1, numbers)))
    data = subject.training.take(spread_rows(subject.training, fewer_of_places(subject, rows, FEWEST_ROWS)))
    losses, outputs = _losses(subject, data)
    most = _most(constant, first)
    if math.isfinite(mean := min(losses.values())):
        if mean <= most:
            return None
        # Of these rows, whose targets may have a heavy tail.
        constant = lowest_constants(subject, outputs, data.targets)
        most = _most(constant, first)
        if mean <= most:
            return None
    with torch.no_grad(), autocast(subject):
        of_rows = subject.recipe.loss_fn(subject.model().eval()(data.inputs), data.targets).float()
    far = int((~of_rows.isfinite() | (of_rows > most)).sum())
    evidence = (
        f"in {far:,} of {len(of_rows):,} rows the loss is up to {float(of_rows.max()):.4g} before any update, where "
        f"the best constant output has a mean of {constant.best:.4g}"
    )
    return Outcome("fail", evidence, mean, most, *_FEW_ROWS, code=FEW_ROWS)


def _most(constant: ConstantLosses, first: float) -> float:
    """The mean loss that is too high; without a zero, by how far the first rows' lies above the best constant's."""
    if constant.best > 0:
        return TOO_HIGH * max(constant.best, constant.neutral)
    above = max(0.0, constant.neutral - constant.best) + max(0.0, first - constant.best)
    return constant.best + TOO_HIGH * (above - constant.best)


_FEW_ROWS = (
    "few rows with an input of another size that the outputs follow, as an exposure that is no logarithm: they "
    "outweigh all others",
    "look at these rows' inputs; give the logarithm of an exposure, scale by quantiles, or clamp what has a long tail",
)


def lowest_constants(subject: Subject, outputs: Any, targets: Tensor) -> ConstantLosses:
    """Of any outputs; where these gain without end or are refused, of those that the network reaches: a clamp may hold
    its spread, and a part of them may be probabilities."""
    try:
        free = constant_losses(subject.recipe.loss_fn, outputs, targets)
        if not is_endless(free):
            return free
    except ProbeError:
        free = None
    held = constant_losses(subject.recipe.loss_fn, outputs, targets, reach(subject))
    return free if free and is_endless(held) else held


def is_endless(constant: ConstantLosses) -> bool:
    return constant.best < UNBOUNDED * max(1.0, abs(constant.neutral))


NOT_FINITE = "values that are not finite in inputs or weights, or a logarithm or division of zero in the loss"


def _losses(subject: Subject, data: Any) -> tuple[dict[str, float], Any]:
    losses, outputs = {}, None
    for mode in ("evaluation", "training"):
        if mode == "training" and len(data.targets) < 2:
            continue
        model = subject.model().train(mode == "training")
        with torch.no_grad(), autocast(subject):
            outputs = model(data.inputs)
            losses[mode] = float(subject.recipe.loss_fn(outputs, data.targets).float().mean())
    return losses, outputs


def _judged(
    subject: Subject, losses: dict[str, float], constant: ConstantLosses, said: str, targets: Tensor
) -> Outcome:
    """By the mode that is nearer to a constant: batch norm's running statistics are not yet those of any row."""
    high = min(losses.values()) / max(constant.best, constant.neutral)
    low = max(losses.values()) / constant.best
    if high > TOO_HIGH:
        return Outcome("fail", f"{said}: {high:.1f} times as much", high, TOO_HIGH)
    if high > HIGH:
        return Outcome("fail", f"{said}: {high:.1f} times as much", high, HIGH, severity="warning")
    if subject.claims.start == "scratch" and low < LOW:
        return _below(low, said, targets)
    if subject.claims.start == "trained" and low > UNTRAINED and is_fresh(subject.model()):
        cause = "weights that were not loaded: every layer is as PyTorch makes a fresh one"
        fix = "load the trained weights in build_model, and let load_state_dict be strict; else declare start: scratch"
        return Outcome(
            "fail", f"{said}, though start: trained is declared", low, UNTRAINED, cause, fix, code=NOT_LOADED
        )
    if _is_real(targets) and (low > FAR_TARGETS or (constant.best > WIDE_TARGETS and _is_narrow(subject, targets))):
        cause = "targets that are not normalised: their mean or their spread is far from what a network starts with"
        fix = "train on (target - mean) / standard deviation of the training rows, or set the head's bias to the mean"
        return Outcome("fail", said, low, FAR_TARGETS, cause, fix, severity="warning", code=NOT_NORMALISED)
    return Outcome("pass", said, high, TOO_HIGH)


def _passed_on(inputs: Mapping[str, Tensor], outputs: Any) -> str:
    """Which number of the inputs the outputs are, before any update; empty where they are none.

    Of a measured value that is no leak by itself: whether an input may be known is asked of the rows.
    """
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        return ""
    rows = len(outputs)
    mean = outputs.detach().double().reshape(rows, -1).mean(dim=1)
    found, most = "", PASSED_ON
    for name, tensor in inputs.items():
        if not tensor.is_floating_point() or len(tensor) != rows:
            continue
        columns = tensor.detach().double().reshape(rows, -1)
        off = columns - columns.mean(dim=0)
        correlations = (off * (mean - mean.mean())[:, None]).mean(dim=0) / (
            off.std(dim=0, correction=0) * mean.std(correction=0)
        )
        largest = correlations.abs().nan_to_num(0.0).max(dim=0)
        if float(largest.values) > most:
            most, place = float(largest.values), f"[{int(largest.indices)}]" if columns.shape[1] > 1 else ""
            found = f"here {name}{place} (correlation {most:.3f}); leakage asks of the rows whether it may be known"
    return found


def _is_narrow(subject: Subject, targets: Tensor) -> bool:
    """Whether fresh outputs, stirred a little, vary far less than the targets: a network that knows their spread, and
    multiplies by it, is no slower for a large unit."""
    data = subject.training.take(spread_rows(subject.training, fewer_of_places(subject, ROWS, FEWEST_ROWS)))
    with torch.no_grad(), autocast(subject):
        outputs = stirred(subject.model().eval())(data.inputs)
    if not isinstance(outputs, torch.Tensor):
        return True
    return float(outputs.float().std()) ** 2 * WIDE_TARGETS < float(targets.float().var())


def _below(low: float, said: str, targets: Tensor) -> Outcome:
    cause = "an input that holds the label, or weights that have been trained before"
    fix = "look for the label among the inputs; for trained weights declare preflight: {start: trained}"
    if low < TOO_LOW and not _is_real(targets):
        return Outcome(
            "fail", f"{said}: {low:.2f} of it before any update", low, TOO_LOW, cause, fix, code=LABEL_IN_INPUT
        )
    why = "an output that passes an input on, as a forecast that starts from the last value, can be so near"
    return Outcome("insufficient", f"{said}: {low:.2f} of it before any update; {why}", low, TOO_LOW, cause, fix)


def is_fresh(model: nn.Module) -> bool:
    """Whether every linear and convolutional layer has the spread and the bounds that PyTorch starts with."""
    layers = [
        module for module in model.modules() if isinstance(module, (torch.nn.Linear, torch.nn.modules.conv._ConvNd))
    ]
    return bool(layers) and all(_is_default(layer.weight) for layer in layers)


def _is_default(weight: Tensor) -> bool:
    """Uniform within 1 / sqrt(fan in): nothing beyond, and its standard deviation within five of its errors."""
    bound = 1 / math.sqrt(weight[0].numel())
    weight = weight.detach().float()
    spread = float(weight.square().mean().sqrt()) * math.sqrt(3) / bound
    return float(weight.abs().max()) <= bound * (1 + 1e-5) and abs(spread - 1) < 5 * 0.45 / math.sqrt(weight.numel())


def _is_real(targets: Tensor) -> bool:
    """Measured values, not classes."""
    return targets.is_floating_point() and len(targets.unique()) > MOST_CLASSES


def _mean_losses(losses: dict[str, float]) -> str:
    return "mean loss " + " and ".join(f"{loss:.4g} in {mode} mode" for mode, loss in losses.items())
