"""What the untrained network's layers give: their scale, units that give nothing, and units at their limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils._python_dispatch import TorchDispatchMode

from trainworthy.lifecycle.engine.outputs.pytree import is_float
from trainworthy.lifecycle.engine.preflight.start.steady import steady
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Outcome

ROWS = 128
# A unit that is zero for so many rows may just be sparse.
FEWEST_ROWS = 16
DEAD, SATURATED = 0.9, 0.9
# Where a sigmoid's or a hyperbolic tangent's slope is a hundredth of its largest.
FLAT_SIGMOID, FLAT_TANH = 0.0025, 0.995
# Scale of what enters the last layer, absolute and against the first layer's: both must be beyond.
TOO_SMALL, TOO_LARGE = 1e-4, 1e4
# Share of what enters the last layer that differs between rows.
SAME = 1e-3
# Share of what enters a layer that differs between its units; fewer of them may be equal by design.
ALIKE, FEWEST_UNITS = 1e-5, 4


@dataclass
class Layer:
    """What entered or left one call of a layer: its scale, and the shares of it that differ between rows and units."""

    name: str
    scale: float
    differs: float
    unit_spread: float


@dataclass
class ForwardTrace:
    """Of one forward pass: weighted layers' first output and later inputs, and the calls of activation functions."""

    first: Layer | None = None
    entered: list[Layer] = field(default_factory=list)
    dead: list[tuple[str, float, int]] = field(default_factory=list)
    saturated: list[tuple[str, float]] = field(default_factory=list)
    where: list[str] = field(default_factory=lambda: ["the network"])


def activations(subject: Subject) -> Outcome:
    """One forward pass in training mode without dropout, watched."""
    data = subject.training.take(spread_rows(subject.training, ROWS))
    trace = watched(subject, data.inputs, many=len(data.targets) > 1)
    for judge in (_dead, _saturated, _alike, _scale):
        if (fault := judge(trace)) is not None:
            return fault
    evidence = (
        f"scale {trace.entered[-1].scale:.3g} into the last layer {trace.entered[-1].name}" if trace.entered else "-"
    )
    worst = max((share for _, share, _ in trace.dead), default=0.0)
    return Outcome(
        "pass", f"{evidence}; at most {worst:.0%} dead units in {len(trace.dead)} rectified layers", worst, DEAD
    )


def watched(subject: Subject, inputs: dict[str, Tensor], *, many: bool) -> ForwardTrace:
    """What a fresh network's layers give on these rows."""
    model, trace = subject.model(), ForwardTrace()
    if many:
        steady(model)
    else:
        model.eval()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda module, args, name=name: _enter(trace, module, name, args))
        module.register_forward_hook(lambda module, args, output: _leave(trace, module, output))
    with torch.no_grad(), autocast(subject), _functions(trace):
        model(inputs)
    return trace


def _weighted(module: nn.Module) -> bool:
    """A leaf with a matrix of its own: linear, convolution. An embedding's output is its weights."""
    leaf = not isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and not list(module.children())
    return leaf and any(parameter.ndim >= 2 for parameter in module.parameters(recurse=False))


def _enter(trace: ForwardTrace, module: nn.Module, name: str, args: Any) -> None:
    trace.where.append(name or "the network")
    entering = _plain(args[0]) if args and is_float(args[0]) else None
    if trace.first is not None and _weighted(module) and entering is not None and entering.numel():
        trace.entered.append(_layer(name, entering))


def _leave(trace: ForwardTrace, module: nn.Module, output: Any) -> None:
    name = trace.where.pop()
    leaving = _plain(output) if is_float(output) else None
    if trace.first is None and _weighted(module) and leaving is not None and leaving.numel():
        trace.first = _layer(name, leaving)


def _plain(tensor: Tensor) -> Tensor:
    """The values behind the wrappers of torch.func: what vmap hides of a batch comes first again, and can be read."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        hidden = _functorch.maybe_get_bdim(tensor) if _functorch.is_batchedtensor(tensor) else None
        tensor = _functorch.get_unwrapped(tensor)
        tensor = tensor if hidden is None else tensor.movedim(hidden, 0)
    return tensor.detach()


def _layer(name: str, tensor: Tensor) -> Layer:
    rows = tensor.detach().float()
    scale = rows.square().mean().sqrt()
    units = 1 if rows.ndim in (2, 4, 5) else -1
    differs, unit_spread = (
        (rows - rows.mean(axis, keepdim=True)).square().mean().sqrt() / scale.clamp_min(1e-38) for axis in (0, units)
    )
    enough = rows.ndim > 1 and rows.shape[units] >= FEWEST_UNITS
    return Layer(name, float(scale), float(differs), float(unit_spread) if enough else 1.0)


def _functions(trace: ForwardTrace) -> Any:
    """Sees each rectifier, sigmoid and tanh, be it a module or a function."""
    aten = torch.ops.aten

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            kind = func.overloadpacket
            if kind in (aten.relu, aten.relu_, aten.threshold) and output.numel() and output.ndim > 1:
                trace.dead.append((trace.where[-1], _dead_share(output == 0), len(output)))
            elif kind in (aten.sigmoid, aten.sigmoid_) and output.numel():
                flat = (output - 0.5).abs() > 0.5 - FLAT_SIGMOID
                trace.saturated.append((trace.where[-1], float(flat.float().mean())))
            elif kind in (aten.tanh, aten.tanh_) and output.numel():
                trace.saturated.append((trace.where[-1], float((output.abs() > FLAT_TANH).float().mean())))
            return output

    return Watch()


def _dead_share(zero: Tensor) -> float:
    """Share of units that are zero everywhere; a unit is a place along one axis, the one that gives the least."""
    axes = range(1, zero.ndim)
    return min(float(zero.movedim(axis, 0).flatten(1).all(1).float().mean()) for axis in axes)


def _dead(trace: ForwardTrace) -> Outcome | None:
    first = next((layer for layer in trace.dead if layer[1] >= DEAD), None)
    if first is None:
        return None
    name, share, rows = first
    said = f"{share:.0%} of the units of {name} are zero for every one of {rows} rows"
    if rows < FEWEST_ROWS:
        return Outcome("insufficient", f"{said}; so few rows do not tell dead units from sparse ones", share, DEAD)
    cause = "a rectifier whose inputs are negative for every row: a large negative bias, or inputs far from zero"
    return Outcome("fail", said, share, DEAD, cause, f"look at the weights and the bias in front of {name}")


def _saturated(trace: ForwardTrace) -> Outcome | None:
    first = next((layer for layer in trace.saturated if layer[1] >= SATURATED), None)
    if first is None:
        return None
    name, share = first
    cause = (
        "a sigmoid or tanh whose inputs are far from zero: inputs that are not scaled, or weights that are too large"
    )
    fix = f"scale what enters {name} to about 1, by its inputs or by its initial weights"
    return Outcome("fail", f"{share:.0%} of the values of {name} are where its slope is nearly zero", share, SATURATED,
                   cause, fix)  # fmt: skip


def _alike(trace: ForwardTrace) -> Outcome | None:
    same = [layer for layer in trace.entered if layer.unit_spread < ALIKE and layer.scale > 0]
    if not same:
        return None
    cause = "equal initial weights: units that start alike have equal gradients and stay alike"
    fix = "draw the weights at random"
    return Outcome("fail", f"all units that enter {same[0].name} are equal", same[0].unit_spread, ALIKE, cause, fix)


def _scale(trace: ForwardTrace) -> Outcome | None:
    if trace.first is None or not trace.entered:
        return Outcome("not_applicable", "a network of one layer has no depth to lose its scale in")
    first, last = trace.first, trace.entered[-1]
    said = f"scale {first.scale:.3g} out of {first.name}, {last.scale:.3g} into {last.name}"
    if not last.scale < float("inf") or last.scale > TOO_LARGE * max(1.0, first.scale):
        return Outcome("fail", said, last.scale, TOO_LARGE, "activations grow from layer to layer")
    if last.scale < TOO_SMALL * min(1.0, first.scale):
        return Outcome("fail", said, last.scale, TOO_SMALL, "activations shrink from layer to layer")
    if first.differs > SAME and last.differs < SAME * first.differs:
        said += f"; of it {last.differs:.1g} differs between rows, {first.differs:.1g} at the first"
        return Outcome("fail", said, last.differs, SAME, "rows become equal on their way through the layers")
    return None
