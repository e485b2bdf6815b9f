"""Is what the optimizer is given the slope of the loss? By moving the weights a little, and asking the loss.

First what backward gives (outputs/true_gradient.py), then what hooks, accumulation and the optimizers make of it until
the update. Asked in float64, in training mode, on few rows and a stirred network; in float32 where it bears no float64.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.directional_derivative import copy_in_float64, in_float64, to_float64, trained
from trainworthy.lifecycle.engine.outputs.gradient_breaks import estimates_held, in_words
from trainworthy.lifecycle.engine.outputs.true_gradient import (
    BY_CHANCE,
    TOLERANCE_ALONE,
    Compared,
    Off,
    compare,
    shares,
)
from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.cpu_first import in_float64 as loss_in_float64
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import other_rows, put_back, spread, stirred
from trainworthy.lifecycle.engine.training.loop import losses_of, train_step, weighed
from trainworthy.lifecycle.engine.training.monitors.float64_copy import MOST_WEIGHTS
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.gates.check import Outcome

ROWS = 8
# Of the loss, by which that of an update on the same rows may differ in float32; else something changes it from pass to
# pass, and so the gradient.
SAME_LOSS = 1e-5
# Codes of what is found.
TURNED, DROWNED, OFF, CHANGED, NOISY = "turned", "drowned", "off", "changed_before_update", "noisy"


@dataclass(frozen=True, eq=False)
class _Probe:
    """A network and what it is asked on: few rows, augmented once, in as many parts as an update has. `earlier` are
    other rows, of the update before."""

    model: nn.Module
    recipe: Recipe
    data: TrainData
    earlier: TrainData
    rows: Tensor

    def mean_loss(self) -> Tensor:
        """The loss of an update on these rows, made as the loop makes it; buffers and random numbers stay."""
        return self._means()[1]

    def unweighted(self) -> float:
        """The same without what rows count for, as an update tells it."""
        with torch.no_grad():
            return float(self._means()[0])

    def _means(self) -> tuple[Tensor, Tensor]:
        parts = self.rows.tensor_split(min(self.recipe.accumulate, len(self.rows)))
        with put_back(self.model), same_random_numbers():
            seed_torch(0)
            plain, weighted = zip(*map(self._share, parts), strict=True)
            return torch.stack(plain).sum(), torch.stack(weighted).sum()

    def _share(self, part: Tensor) -> tuple[Tensor, Tensor]:
        losses = losses_of(self.model, self.data, part, self.recipe, None)
        weights = None if self.data.weights is None else self.data.weights[part]
        plain, weighted = weighed(losses, weights, self.recipe)
        share = len(part) / len(self.rows)
        return plain.mean() * share, weighted.mean() * share


def gradient_is_slope(subject: Subject) -> Outcome:
    """What backward gives is held against the slope, and what the optimizers are given against what backward gives."""
    weights = sum(parameter.numel() for parameter in subject.model().parameters())
    if weights > MOST_WEIGHTS:
        return Outcome("not_applicable", f"{weights:,} weights: more than {MOST_WEIGHTS:,} are not copied for this")
    try:
        probe, comparison = _in_float64(subject)
    except Exception:
        # A network or a loss may bear no float64.
        try:
            probe = _make_probe(subject, stirred(subject.model()), lambda value: value, subject.recipe.loss_fn)
            comparison = compare(probe.model, probe.mean_loss)
        except Exception as error:
            # Its message may quote a value of a row.
            return Outcome("insufficient", f"the loss could not be asked at moved weights: {type(error).__name__}")
    return _unknown(comparison) or _backward_off(comparison) or _update_off(subject, probe, comparison)


def _in_float64(subject: Subject) -> tuple[_Probe, Compared]:
    model = to_float64(stirred(subject.model()))
    probe = _make_probe(subject, model, in_float64, loss_in_float64(subject.recipe.loss_fn, copy_in_float64))
    return probe, compare(model, probe.mean_loss)


def _make_probe(
    subject: Subject, model: nn.Module, made: Callable[..., Tensor | dict[str, Tensor]], loss_fn: Callable[..., Tensor]
) -> _Probe:
    # Two rows a part, for batch norm.
    count = max(ROWS, 2 * subject.recipe.accumulate)
    data, earlier = (
        TrainData(made(rows.inputs), made(rows.targets), rows.weights)  # pyright: ignore[reportArgumentType]
        for rows in (spread(subject, count), other_rows(subject, count))
    )
    # In float32, so that what a coarser type rounds is no deviation: configuration.kernels looks at that.
    recipe = replace(subject.recipe, precision="fp32", loss_fn=loss_fn, augment=None)
    return _Probe(model.train(), recipe, data, earlier, torch.arange(len(data.targets), device=subject.device))


def _unknown(comparison: Compared) -> Outcome | None:
    """Where no slope is known, why."""
    if comparison.whole == "no_gradient":
        return Outcome("insufficient", "the loss has no gradient")
    if comparison.whole == "not_finite":
        return Outcome("insufficient", "a gradient is not finite")
    if comparison.whole == "not_repeatable":
        evidence = (
            "the loss is another one when it is asked again with equal inputs, weights and seeds: no slope is known"
        )
        return Outcome("insufficient", evidence)
    if comparison.whole == "unknown":
        return Outcome(
            "not_applicable", "the loss has steps or kinks nearly wherever it was asked, so that no slope is known"
        )
    return None


def _backward_off(comparison: Compared) -> Outcome | None:
    break_note = f"; seen in the code: {in_words(comparison.breaks)}" if comparison.breaks else ""
    if comparison.whole == "drowned":
        evidence = "two backward passes behind equal forward passes have no direction in common: the gradient is noise"
        return Outcome("fail", evidence + break_note, comparison.noise, cause=_NOISE, fix=_LESS_NOISE, code=DROWNED)
    if comparison.whole == "all_turned":
        evidence = (
            f"every gradient of {comparison.asked} points to where the loss rises: "
            f"{shares(comparison.turned)}{break_note}"
        )
        return Outcome("fail", evidence, comparison.turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    if comparison.turned_by_nothing:
        evidence = f"{shares(comparison.turned)}, and no detach, hook or autograd.Function was seen that turns it round"
        return Outcome("fail", evidence, comparison.turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    if comparison.off:
        evidence = (
            f"{shares(comparison.off)}; {len(comparison.off)} of {comparison.asked} parameters are off{break_note}"
        )
        return Outcome("fail", evidence, comparison.off[0].share, 1.0, severity="warning", code=OFF)
    if comparison.noise:
        evidence = (
            "two backward passes behind equal forward passes differ by "
            f"{comparison.noise:.0%} of the gradient{break_note}"
        )
        return Outcome(
            "fail", evidence, comparison.noise, 0.0, cause=_NOISE, fix=_LESS_NOISE, severity="warning", code=NOISY
        )
    return None


_NOISE = "noise that is added to gradients, or a backward pass that draws anew what its forward pass had drawn"
_LESS_NOISE = "take the noise out, or make it smaller than the gradient; with checkpoint() keep preserve_rng_state=True"
_WRONG_SIGN = "a sign that is wrong in a hook, a backward pass of your own, or an optimizer"
_SIGN = "find where the gradient's sign changes: torch.autograd.gradcheck tells it of a Function"


def _update_off(subject: Subject, probe: _Probe, comparison: Compared) -> Outcome:
    """What comes between backward and the update: hooks, accumulation, optimizers."""
    known = f"{comparison.asked} of {len(trained(probe.model))}"
    passed = Outcome("pass", f"backward gives the slope of the loss, of {known} parameters", comparison.along, 1.0)
    given = _given(subject, probe)
    if given is None:
        return passed
    factor, gradients = given
    off = [
        change for name in gradients if (change := _changed(name, comparison.gradients[name] * factor, gradients[name]))
    ]
    off.sort(key=lambda change: -change.relative_error)
    if not off:
        return Outcome("pass", f"{passed.evidence}, and so does what the optimizer is given", comparison.along, 1.0)
    evidence = f"between backward and update gradients change: {shares(off, 'the optimizer is given')}"
    if _drowned([(comparison.gradients[name], gradient) for name, gradient in gradients.items()]):
        return Outcome("fail", f"{evidence}; nothing of their direction is left", off[0].share, 1.0, cause=_NOISE,
                       fix=_LESS_NOISE, code=DROWNED)  # fmt: skip
    # A single number has no direction that it could have kept.
    turned = [change for change in off if change.flipped and gradients[change.name].numel() > 1]
    if turned and (not comparison.breaks or (all(change.turned for change in off) and len(off) == len(gradients))):
        return Outcome("fail", evidence, turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    cause = "a hook, or an optimizer that changes gradients before its update"
    fix = "if it is meant, declare it: preflight.not_applicable: {wiring.gradient_is_slope: a reason}"
    return Outcome("fail", evidence, off[0].share, 1.0, cause=cause, fix=fix, severity="warning", code=CHANGED)


def _given(subject: Subject, probe: _Probe) -> tuple[float, dict[str, Tensor]] | None:
    """What the optimizers have at their second update, by parameter, and the factor of the loop's clipping; None if no
    update is made. The network is as before afterwards."""
    model, gradients = probe.model, dict[str, Tensor]()
    names = {id(parameter): name for name, parameter in trained(model).items()}

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in names and parameter.grad is not None:
                    gradients[names[id(parameter)]] = parameter.grad.detach().to_dense().clone()

    try:
        optimizers = subject.optimizers(model)
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(note)
        state = TrainState(model, optimizers)
        for data in (probe.earlier, probe.data):
            gradients.clear()
            with _weights_kept(model), put_back(model), estimates_held(model), same_random_numbers():
                seed_torch(0)
                update = train_step(state, data, probe.rows[: len(data.targets)], probe.recipe)
    # one_batch.train tells what is wrong with an update.
    except Exception:
        return None
    with estimates_held(model):
        other = abs(update.loss - probe.unweighted()) > SAME_LOSS * abs(update.loss)
    if not gradients or other or not math.isfinite(update.grad_norm):
        return None
    return min(1.0, probe.recipe.clip_norm / (update.grad_norm + 1e-6)), gradients


@contextlib.contextmanager
def _weights_kept(model: nn.Module) -> Iterator[None]:
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])


def _changed(name: str, expected: Tensor, given: Tensor) -> Off | None:
    """How far what was given is from what was wanted."""
    size = float(torch.linalg.vector_norm(expected))
    distance = float(torch.linalg.vector_norm(given - expected))
    if not distance > TOLERANCE_ALONE * max(size, torch.finfo(given.dtype).eps):
        return None
    share = float((expected.conj() * given).real.sum()) / size**2 if size else math.inf
    return Off(name, share, distance / size if size else math.inf)


def _drowned(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Nothing in common but by chance; what is zeroed is no noise."""
    common = sum(float((expected.conj() * other).real.sum()) for expected, other in pairs)
    own, given = (math.sqrt(sum(float(pair[n].abs().square().sum()) for pair in pairs)) for n in (0, 1))
    numbers = sum(expected.numel() for expected, _ in pairs)
    return given > 0 and own > 0 and abs(common) < own * given * min(0.5, BY_CHANCE / math.sqrt(numbers))
