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
from trainworthy.lifecycle.engine.outputs.true_gradient import APART_ALONE, BY_CHANCE, Compared, Off, compare, shares
from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.cpu_first import in_float64 as loss_in_float64
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import others, put_back, spread, stirred
from trainworthy.lifecycle.engine.training.loop import losses_of, train_step, weighed
from trainworthy.lifecycle.engine.training.monitors.float64_copy import MOST_WEIGHTS
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.gates.check import Found

ROWS = 8
# Of the loss, by which that of an update on the same rows may differ in float32; else something changes it from pass to
# pass, and so the gradient.
SAME_LOSS = 1e-5
# Codes of what is found.
TURNED, DROWNED, OFF, CHANGED, NOISY = "turned", "drowned", "off", "changed_before_update", "noisy"


@dataclass(frozen=True, eq=False)
class _Asked:
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
            torch.manual_seed(0)
            plain, weighted = zip(*map(self._share, parts), strict=True)
            return torch.stack(plain).sum(), torch.stack(weighted).sum()

    def _share(self, part: Tensor) -> tuple[Tensor, Tensor]:
        losses = losses_of(self.model, self.data, part, self.recipe, None)
        weights = None if self.data.weights is None else self.data.weights[part]
        plain, weighted = weighed(losses, weights, self.recipe)
        share = len(part) / len(self.rows)
        return plain.mean() * share, weighted.mean() * share


def gradient_is_slope(subject: Subject) -> Found:
    """What backward gives is held against the slope, and what the optimizers are given against what backward gives."""
    weights = sum(one.numel() for one in subject.model().parameters())
    if weights > MOST_WEIGHTS:
        return Found("not_applicable", f"{weights:,} weights: more than {MOST_WEIGHTS:,} are not copied for this")
    try:
        asked, found = _in_float64(subject)
    except Exception:
        # A network or a loss may bear no float64.
        try:
            asked = _asked(subject, stirred(subject.model()), lambda one: one, subject.recipe.loss_fn)
            found = compare(asked.model, asked.mean_loss)
        except Exception as error:
            # Its message may quote a value of a row.
            return Found("insufficient", f"the loss could not be asked at moved weights: {type(error).__name__}")
    return _unknown(found) or _backward_off(found) or _update_off(subject, asked, found)


def _in_float64(subject: Subject) -> tuple[_Asked, Compared]:
    model = to_float64(stirred(subject.model()))
    asked = _asked(subject, model, in_float64, loss_in_float64(subject.recipe.loss_fn, copy_in_float64))
    return asked, compare(model, asked.mean_loss)


def _asked(
    subject: Subject, model: nn.Module, made: Callable[..., Tensor | dict[str, Tensor]], loss_fn: Callable[..., Tensor]
) -> _Asked:
    # Two rows a part, for batch norm.
    count = max(ROWS, 2 * subject.recipe.accumulate)
    data, earlier = (
        TrainData(made(one.inputs), made(one.targets), one.weights)  # pyright: ignore[reportArgumentType]
        for one in (spread(subject, count), others(subject, count))
    )
    # In float32, so that what a coarser type rounds is no deviation: configuration.kernels looks at that.
    recipe = replace(subject.recipe, precision="fp32", loss_fn=loss_fn, augment=None)
    return _Asked(model.train(), recipe, data, earlier, torch.arange(len(data.targets), device=subject.device))


def _unknown(found: Compared) -> Found | None:
    """Where no slope is known, why."""
    if found.whole == "no_gradient":
        return Found("insufficient", "the loss has no gradient")
    if found.whole == "not_finite":
        return Found("insufficient", "a gradient is not finite")
    if found.whole == "not_repeatable":
        told = "the loss is another one when it is asked again with equal inputs, weights and seeds: no slope is known"
        return Found("insufficient", told)
    if found.whole == "unknown":
        return Found(
            "not_applicable", "the loss has steps or kinks nearly wherever it was asked, so that no slope is known"
        )
    return None


def _backward_off(found: Compared) -> Found | None:
    beside = f"; seen in the code: {in_words(found.breaks)}" if found.breaks else ""
    if found.whole == "drowned":
        told = "two backward passes behind equal forward passes have no direction in common: the gradient is noise"
        return Found("fail", told + beside, found.noise, cause=_NOISE, fix=_LESS_NOISE, code=DROWNED)
    if found.whole == "all_turned":
        told = f"every gradient of {found.asked} points to where the loss rises: {shares(found.turned)}{beside}"
        return Found("fail", told, found.turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    if found.turned_by_nothing:
        told = f"{shares(found.turned)}, and no detach, hook or autograd.Function was seen that turns it round"
        return Found("fail", told, found.turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    if found.off:
        told = f"{shares(found.off)}; {len(found.off)} of {found.asked} parameters are off{beside}"
        return Found("fail", told, found.off[0].share, 1.0, severity="warning", code=OFF)
    if found.noise:
        told = f"two backward passes behind equal forward passes differ by {found.noise:.0%} of the gradient{beside}"
        return Found("fail", told, found.noise, 0.0, cause=_NOISE, fix=_LESS_NOISE, severity="warning", code=NOISY)
    return None


_NOISE = "noise that is added to gradients, or a backward pass that draws anew what its forward pass had drawn"
_LESS_NOISE = "take the noise out, or make it smaller than the gradient; with checkpoint() keep preserve_rng_state=True"
_WRONG_SIGN = "a sign that is wrong in a hook, a backward pass of your own, or an optimizer"
_SIGN = "find where the gradient's sign changes: torch.autograd.gradcheck tells it of a Function"


def _update_off(subject: Subject, asked: _Asked, found: Compared) -> Found:
    """What comes between backward and the update: hooks, accumulation, optimizers."""
    known = f"{found.asked} of {len(trained(asked.model))}"
    passed = Found("pass", f"backward gives the slope of the loss, of {known} parameters", found.along, 1.0)
    given = _given(subject, asked)
    if given is None:
        return passed
    factor, gradients = given
    off = [one for name in gradients if (one := _changed(name, found.gradients[name] * factor, gradients[name]))]
    off.sort(key=lambda one: -one.apart)
    if not off:
        return Found("pass", f"{passed.evidence}, and so does what the optimizer is given", found.along, 1.0)
    told = f"between backward and update gradients change: {shares(off, 'the optimizer is given')}"
    if _drowned([(found.gradients[name], one) for name, one in gradients.items()]):
        return Found("fail", f"{told}; nothing of their direction is left", off[0].share, 1.0, cause=_NOISE,
                     fix=_LESS_NOISE, code=DROWNED)  # fmt: skip
    # A single number has no direction that it could have kept.
    turned = [one for one in off if one.flipped and gradients[one.name].numel() > 1]
    if turned and (not found.breaks or (all(one.turned for one in off) and len(off) == len(gradients))):
        return Found("fail", told, turned[0].share, 1.0, cause=_WRONG_SIGN, fix=_SIGN, code=TURNED)
    cause = "a hook, or an optimizer that changes gradients before its update"
    fix = "if it is meant, declare it: preflight.not_applicable: {wiring.gradient_is_slope: a reason}"
    return Found("fail", told, off[0].share, 1.0, cause=cause, fix=fix, severity="warning", code=CHANGED)


def _given(subject: Subject, asked: _Asked) -> tuple[float, dict[str, Tensor]] | None:
    """What the optimizers have at their second update, by parameter, and the factor of the loop's clipping; None if no
    update is made. The network is as before afterwards."""
    model, seen = asked.model, dict[str, Tensor]()
    names = {id(one): name for name, one in trained(model).items()}

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for one in group["params"]:
                if id(one) in names and one.grad is not None:
                    seen[names[id(one)]] = one.grad.detach().to_dense().clone()

    try:
        optimizers = subject.optimizers(model)
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(note)
        state = TrainState(model, optimizers)
        for data in (asked.earlier, asked.data):
            seen.clear()
            with _weights_kept(model), put_back(model), estimates_held(model), same_random_numbers():
                torch.manual_seed(0)
                update = train_step(state, data, asked.rows[: len(data.targets)], asked.recipe)
    # one_batch.train tells what is wrong with an update.
    except Exception:
        return None
    with estimates_held(model):
        other = abs(update.loss - asked.unweighted()) > SAME_LOSS * abs(update.loss)
    if not seen or other or not math.isfinite(update.grad_norm):
        return None
    return min(1.0, asked.recipe.clip_norm / (update.grad_norm + 1e-6)), seen


@contextlib.contextmanager
def _weights_kept(model: nn.Module) -> Iterator[None]:
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, one in model.named_parameters():
                one.copy_(before[name])


def _changed(name: str, wanted: Tensor, given: Tensor) -> Off | None:
    """How far what was given is from what was wanted."""
    size = float(torch.linalg.vector_norm(wanted))
    apart = float(torch.linalg.vector_norm(given - wanted))
    if not apart > APART_ALONE * max(size, torch.finfo(given.dtype).eps):
        return None
    share = float((wanted.conj() * given).real.sum()) / size**2 if size else math.inf
    return Off(name, share, apart / size if size else math.inf)


def _drowned(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Nothing in common but by chance; what is zeroed is no noise."""
    common = sum(float((one.conj() * other).real.sum()) for one, other in pairs)
    own, given = (math.sqrt(sum(float(pair[n].abs().square().sum()) for pair in pairs)) for n in (0, 1))
    numbers = sum(one.numel() for one, _ in pairs)
    return given > 0 and own > 0 and abs(common) < own * given * min(0.5, BY_CHANCE / math.sqrt(numbers))
