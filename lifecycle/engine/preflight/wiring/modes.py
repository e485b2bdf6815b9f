"""Do training and evaluation mode do what they should, and does evaluation leave everything as it was?

Does one batch norm normalise values of two distributions? Each call uses its own mean and variance in training, and its
running ones are a mix of both in evaluation, which is neither. Twins are healthy: one layer gives each call its values,
and rows of one kind have statistics that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.start.steady import steady
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.gradients import claimed_frozen
from trainworthy.lifecycle.engine.preflight.wiring.passes import (
    batch_norm,
    buffers,
    few,
    floats,
    forward,
    largest,
    losses,
    put_back,
    spread,
    stirred,
)
from trainworthy.lifecycle.gates.check import Outcome

# One row and a batch go through other kernels: float32 sums differ in their last digits, TF32's in the fourth.
EQUAL, ALONE = 1e-5, 1e-2
SHARED_NORM = "shared_norm"
NORM_ROWS = 256
# In half of the channels, two calls' means lie so many standard deviations apart, or their deviations are so many times
# each other: of values that different layers give, beyond what chance makes of 256 rows (0.1 and 1.05); of one layer's,
# where evaluation is off by more than what tells rows apart.
OTHER_LAYERS, ONE_LAYER = (0.25, 1.2), (1.0, 2.0)


def evaluation_repeats(subject: Subject) -> Outcome:
    """Equal rows, equal answers: at a second call, after other rows, and for a row alone."""
    if subject.claims.evaluation == "stochastic":
        return Outcome("not_applicable", "declared: predictions are drawn")
    model, data = stirred(subject.model()).eval(), few(subject)
    with torch.no_grad(), batch_norm() as of_batch, same_random_numbers():
        first = floats(model(dict(data.inputs)))
        model({name: tensor.flip(0) for name, tensor in data.inputs.items()})
        second = floats(model(dict(data.inputs)))
    differs = _difference(first, second)
    if differs > EQUAL:
        evidence = f"equal rows differ by {differs:.2g} of the outputs' size when they are evaluated again"
        return Outcome("fail", evidence, differs, EQUAL, cause=_why_not_equal(subject))
    if subject.claims.rows == "together" or len(data.targets) < 2:
        return Outcome("pass", f"{len(data.targets)} rows give equal outputs again", differs, EQUAL)
    if of_batch:
        evidence = (
            "rows give equal outputs again; a row alone is not compared, since batch norm uses the batch's statistics"
        )
        return Outcome("pass", evidence, differs, EQUAL)
    return _alone(model, data, first)


def _alone(model: nn.Module, data: Any, first: list[Tensor]) -> Outcome:
    single = data.take(torch.arange(1, device=data.targets.device))
    fix = "name the dimensions that are squeezed or flattened: squeeze(1), flatten(1)"
    try:
        with torch.no_grad():
            alone = floats(forward(model, single.inputs))
    except Exception as error:
        # Whatever the network raises: a service asks for one row.
        evidence = f"a row alone raises {type(error).__name__}"
        return Outcome("fail", evidence, cause="a dimension of size 1 is squeezed away, or a size is fixed", fix=fix)
    rows = len(data.targets)
    pairs = [(a, b) for a, b in zip(alone, first, strict=True) if b.ndim and len(b) == rows]
    if any(a.shape != b[:1].shape for a, b in pairs):
        evidence = f"a row alone gives the shape {tuple(alone[0].shape)}, in a batch {tuple(first[0][:1].shape)}"
        return Outcome("fail", evidence, cause="a dimension of size 1 is squeezed away", fix=fix)
    differs = max((largest(a - b[:1]) / max(largest(b), 1e-12) for a, b in pairs), default=0.0)
    if differs > ALONE:
        evidence = f"a row alone differs from the same row in a batch by {differs:.2g} of the outputs' size"
        return Outcome(
            "fail", evidence, differs, ALONE, cause="outputs depend on the rows beside: see wiring.rows_apart"
        )
    return Outcome("pass", f"{rows} rows give equal outputs again, and one alone", differs, ALONE)


def _why_not_equal(subject: Subject) -> str:
    """Random numbers, if others give other answers of networks that were never asked; else a state."""
    data = few(subject)
    with torch.no_grad():
        first, other = (floats(forward(stirred(subject.model()).eval(), data.inputs, seed)) for seed in (0, 1))
    drawn = _difference(first, other) > EQUAL
    return "random numbers are drawn in evaluation mode: dropout or noise that is not switched off" if drawn else ""


def _difference(first: list[Tensor], other: list[Tensor]) -> float:
    """Largest difference as a share of the largest value."""
    if any(a.shape != b.shape for a, b in zip(first, other, strict=True)):
        return float("inf")
    return max((largest(a - b) / max(largest(a), 1e-12) for a, b in zip(first, other, strict=True)), default=0.0)


def evaluation_changes_nothing(subject: Subject) -> Outcome:
    """Weights, gradients, modes and the next training loss after an evaluation are those from before it."""
    model, data, loss_fn = stirred(subject.model()), few(subject), subject.recipe.loss_fn
    rows = subject.batch_rows() > 1
    model.eval()
    modes = [module.training for module in model.modules()]
    weights = [(name, p, p.detach().clone()) for name, p in model.named_parameters()]
    stored = buffers(model)
    untouched = subject.model().eval()
    untouched.load_state_dict(model.state_dict())
    with torch.no_grad(), same_random_numbers():
        loss_fn(model(dict(data.inputs)), data.targets)
    if modes != [module.training for module in model.modules()]:
        cause = "forward calls train() or eval()"
        return Outcome("fail", "the mode of a layer differs after a forward pass in evaluation mode", cause=cause)
    moved = [name for name, p, value in weights if not p.equal(value)]
    if moved:
        return Outcome("fail", f"{', '.join(moved[:4])} changed in evaluation", len(moved), 0)
    if any(p.grad is not None for _, p, _ in weights):
        return Outcome("fail", "parameters have a gradient after evaluation", cause="forward calls backward")
    changed = [name for module, name, _, value in stored if not getattr(module, name).equal(value)]
    with torch.no_grad():
        for training in (True, False) if rows else (False,):
            now, before = (losses(network.train(training), data, loss_fn).losses for network in (model, untouched))
            differs = _difference([before], [now])
            if differs > EQUAL:
                mode = "training" if training else "evaluation"
                evidence = f"after an evaluation the loss in {mode} mode differs by {differs:.2g} of its size"
                names = f"; changed: {', '.join(dict.fromkeys(changed))}" if changed else ""
                return Outcome("fail", evidence + names, differs, EQUAL)
    noted = f"; {', '.join(dict.fromkeys(changed))} changed, without an effect" if changed else ""
    return Outcome("pass", f"weights, gradients, modes and the next losses stay{noted}", 0.0, EQUAL)


def modes(subject: Subject) -> Outcome:
    """Randomness only in training; training mode reaches what trains; running statistics that are used get updated."""
    model, data = stirred(subject.model()), few(subject)
    frozen = claimed_frozen(subject, model)
    drawn = _drawn_in_evaluation(subject, model, data)
    if drawn and subject.claims.evaluation == "deterministic":
        return Outcome("fail", drawn)
    stuck = _stuck(subject, model, data, frozen)
    if stuck:
        evidence = f"{', '.join(stuck[:4])} {'is' if len(stuck) == 1 else 'are'} in evaluation mode while training"
        cause = "train() does not reach them, or forward calls eval()"
        return Outcome(
            "fail", evidence, len(stuck), 0, cause=cause, fix="call super().train(mode), and no eval() in forward"
        )
    stale = _stale(subject, model, data)
    if stale:
        evidence = f"evaluation uses {', '.join(stale[:4])}, which training neither uses nor updates"
        cause = "running statistics that are not updated, so that evaluation normalises by their start values"
        fix = "update the buffer in training mode, in place: self.running_mean.lerp_(mean, momentum)"
        return Outcome("fail", evidence, len(stale), 0, cause=cause, fix=fix)
    if _sets_the_seed(subject, model, data):
        evidence = "after a training pass the random numbers are the same, whichever they were before it"
        cause = "forward sets the seed (torch.manual_seed), so that each dropout mask and each noise is the first one"
        fix = "set no seed in forward; for a noise of its own take a torch.Generator, or torch.random.fork_rng"
        return Outcome("fail", evidence, cause=cause, fix=fix)
    if (shared := shared_norm(subject)) is not None:
        return shared
    return Outcome("pass", "no random numbers in evaluation, training mode reaches what trains, statistics are updated")


def _drawn_in_evaluation(subject: Subject, model: nn.Module, data: Any) -> str:
    """Words if outputs in evaluation mode depend on the random numbers."""
    model.eval()
    with torch.no_grad():
        first, other, again = (floats(forward(model, data.inputs, seed)) for seed in (0, 1, 0))
    by_seed, by_chance = _difference(first, other), _difference(first, again)
    if by_seed <= max(EQUAL, 2 * by_chance):
        return ""
    active = [name for name, module in model.named_modules() if module.training and getattr(module, "p", 0)]
    names = f": eval() does not reach {', '.join(active[:4])}" if active else ""
    return f"outputs in evaluation mode differ by {by_seed:.2g} of their size with other random numbers{names}"


def _sets_the_seed(subject: Subject, model: nn.Module, data: Any) -> bool:
    model.train()
    with torch.no_grad():
        first, other = (losses(model, data, subject.recipe.loss_fn, seed).random_state for seed in (1, 2))
    return first.equal(other)


def _stuck(subject: Subject, model: nn.Module, data: Any, frozen: set[str]) -> list[str]:
    """Layers that train, act otherwise in training, and are in evaluation mode after train() and a forward pass.

    A frozen part that is kept in evaluation mode is healthy, and so are kept statistics of a trained start.
    """
    if subject.claims.start == "trained" or subject.batch_rows() == 1:
        return []
    model.train()
    with torch.no_grad():
        forward(model, data.inputs)
    training = {name for name, p in model.named_parameters() if p.requires_grad and name not in frozen}
    return [
        name or "the network" for name, module in model.named_modules()
        if not module.training and any(path.startswith(f"{name}." if name else "") for path in training)
        and any(_acts_otherwise(part) for part in module.modules())
    ]  # fmt: skip


def _acts_otherwise(module: nn.Module) -> bool:
    """Whether the mode changes what a layer does: dropout, and normalisation with running statistics."""
    if isinstance(module, _DropoutNd | nn.RNNBase):
        return bool(module.p if isinstance(module, _DropoutNd) else module.dropout)
    return isinstance(module, _NormBase) and bool(module.track_running_stats)


def _stale(subject: Subject, model: nn.Module, data: Any) -> list[str]:
    """Floating buffers that evaluation's outputs depend on, and that training neither reads nor changes.

    A momentum of 0 is a choice: such statistics are left out.
    """
    if subject.batch_rows() == 1:
        return []
    statistics = buffers(model.train())
    with torch.no_grad(), same_random_numbers():
        model(dict(data.inputs))
    unchanged = [
        (module, name) for module, name, _, value in statistics
        if value.is_floating_point() and getattr(module, name).equal(value) and _at_start(value)
        and getattr(module, "momentum", None) != 0
    ]  # fmt: skip
    return [
        _path(model, module, name) for module, name in unchanged if _only_evaluation_reads(model, data, module, name)
    ]


def _at_start(value: Tensor) -> bool:
    """Zeros or ones, as running statistics begin; what was fitted or loaded holds other values."""
    return value.ndim > 0 and (bool((value == 0).all()) or bool((value == 1).all()))


def _only_evaluation_reads(model: nn.Module, data: Any, module: nn.Module, name: str) -> bool:
    buffer, read = getattr(module, name), []
    value = buffer.detach().clone()
    with torch.no_grad():
        for training in (True, False):
            model.train(training)
            plain = floats(forward(model, data.inputs))
            buffer.data.copy_(value * 1.5 + 0.5)
            other = floats(forward(model, data.inputs))
            buffer.data.copy_(value)
            read.append(_difference(plain, other) > EQUAL)
    return read == [False, True]


def _path(model: nn.Module, module: nn.Module, name: str) -> str:
    return next(f"{path}.{name}".lstrip(".") for path, submodule in model.named_modules() if submodule is module)


@dataclass(frozen=True)
class Call:
    """Which layer with weights ended last before a call, and the mean and deviation of each channel."""

    layer: str
    mean: Tensor
    deviation: Tensor


def shared_norm(subject: Subject) -> Outcome | None:
    """A warning for the first batch norm with running statistics whose calls in a training pass are so far apart."""
    model, data = subject.model(), spread(subject, NORM_ROWS)
    if subject.batch_rows() < 2 or len(data.targets) < 2:
        return None
    for name, calls in _calls(steady(model), data.inputs).items():
        for other in calls[1:]:
            means, deviations = _gap_and_ratio(calls[0], other)
            most = ONE_LAYER if other.layer == calls[0].layer else OTHER_LAYERS
            if means > most[0] or deviations > most[1]:
                evidence = (
                    f"{name} normalises {len(calls)} times in a pass; means of its channels lie {means:.2g} deviations"
                )
                evidence += f" apart, and the deviations differ {deviations:.2g}-fold (medians)"
                cause = "one batch norm at several places: in evaluation all use one mix of their means and variances"
                fix = f"give each place a batch norm of its own beside {name}, or take a LayerNorm or GroupNorm"
                return Outcome("fail", evidence, means, most[0], cause, fix, severity="warning", code=SHARED_NORM)
    return None


def _calls(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, list[Call]]:
    """The calls of each batch norm with running statistics, in a pass as in training."""
    calls: dict[str, list[Call]] = {}
    last = [""]

    def ended(name: str) -> None:
        last[0] = name

    def called(name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        calls[name].append(Call(last[0], *_of(args[0])))

    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.training:
            calls[name] = []
            module.register_forward_pre_hook(partial(called, name))
        elif any(parameter.ndim > 1 for parameter in module.parameters(recurse=False)):
            module.register_forward_hook(lambda *_, name=name: ended(name))
    if calls:
        with torch.no_grad(), put_back(model):
            model(dict(inputs))
    return calls


def _of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel."""
    columns = values.detach().float().movedim(1, 0).flatten(1)
    return columns.mean(1), columns.std(1, correction=0)


def _gap_and_ratio(call: Call, other: Call) -> tuple[float, float]:
    """How far the means of two calls are apart, in deviations, and the ratio of these; medians of the channels."""
    tiny = 1e-6 * float(call.deviation.max()) + 1e-12
    size = (call.deviation + other.deviation) / 2 + tiny
    ratio = ((other.deviation + tiny) / (call.deviation + tiny)).log().abs().median().exp()
    return float(((other.mean - call.mean).abs() / size).median()), float(ratio)
