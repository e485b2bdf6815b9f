"""How far a network's outputs go: the last layers are blown up, and what does not follow is confined."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.outputs.autograd_graph import leaves_of, nearest_leaves
from trainworthy.lifecycle.engine.outputs.free_outputs import Ends
from trainworthy.lifecycle.engine.outputs.pytree import row_places
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, forward, stirred
from trainworthy.lifecycle.engine.training.state import TrainData

LAST_LAYERS, DRAWS, FACTORS = 3, 4, (10.0, 1000.0)
# The length of a vector saturates whatever its sign: its lower end is met by small layers alone.
SHRUNK = (1e-3,)
# An output that follows grows a hundredfold between the two factors, one that is confined not at all.
FOLLOWS = 1.5

Box = list[tuple["Tensor", "Tensor"]]


def is_confined(subject: Subject) -> bool:
    """Whether every output stays between two ends, whatever the last layers' size."""
    box = list(reach(subject).values())
    return bool(box) and all(bool(low.isfinite().all() & high.isfinite().all()) for low, high in box)


def reach(subject: Subject) -> dict[int, Ends]:
    """Lowest and highest value of each channel of a few rows' outputs, by the leaf's place; on the device."""
    model, data = stirred(subject.model()).eval(), few(subject)
    base, ended = traced(model, data)
    places, leaves = row_places(tree_leaves(base), len(data.targets)), tree_leaves(base)
    pushed = pushed_outputs(model, data, last_layers(ended, [leaves[at] for at in places]))
    box = (
        reach_of([[[tree_leaves(outputs)[at] for at in places] for outputs in some] for some in pushed])
        if places
        else []
    )
    box = widened(box, [[leaves[at] for at in places]])
    return {at: (low.to(subject.device), high.to(subject.device)) for at, (low, high) in zip(places, box, strict=True)}


def pushed_outputs(
    model: nn.Module, data: TrainData, layers: dict[nn.Module, bool], factors: tuple[float, ...] = FACTORS
) -> list[list[Any]]:
    """Outputs by factor, each for some random signs of the layers, and for the opposite ones of each output's last."""
    own = [(last, p, p.detach().clone()) for layer, last in layers.items() for p in layer.parameters(recurse=False)]
    given = []
    with torch.no_grad():
        for factor in factors:
            given.append([])
            for draw in range(DRAWS):
                for sign in (1.0, -1.0):
                    generator = torch.Generator().manual_seed(draw)
                    for last, parameter, value in own:
                        noise = torch.randn(value.shape, generator=generator).to(value.device, value.dtype)
                        size = value.abs().mean().clamp(min=0.02) * factor * (sign if last else 1.0)
                        parameter.copy_(noise * size)
                    given[-1].append(forward(model, data.inputs))
        for _, parameter, value in own:
            parameter.copy_(value)
    return given


def traced(model: nn.Module, data: TrainData) -> tuple[Any, list[nn.Module]]:
    """The outputs, with their graph, and the layers with parameters of their own, the one that ended last first.

    Behind them those that never end, whose parameters are read without a call, as by `functional.linear`.
    """
    ended: list[nn.Module] = []
    layers = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    handles = [module.register_forward_hook(lambda module, *_: ended.append(module)) for module in layers]
    for parameter in model.parameters():
        # A frozen layer bounds an output as well as one that trains.
        parameter.requires_grad_(parameter.is_floating_point())
    try:
        base = forward(model, data.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return base, list(dict.fromkeys([*reversed(ended), *reversed(layers)])) or [model]


def last_layers(ended: list[nn.Module], outputs: list[Tensor]) -> dict[nn.Module, bool]:
    """The layers that end last on the way to each output, in the order of the pass; whether one is an output's last."""
    layers: dict[nn.Module, bool] = {}
    for output in outputs:
        reached = set(leaves_of(output))
        ways = [layer for layer in ended if any(p in reached for p in layer.parameters(recurse=False))]
        # Where nothing is seen, the way is hidden, as by a reentrant checkpoint.
        for place, layer in enumerate((ways or ended)[:LAST_LAYERS]):
            layers[layer] = layers.get(layer, False) or place == 0
        # Several heads may be joined in one output, each with a last layer of its own.
        heads = nearest_leaves(output)
        layers |= {layer: True for layer in ways if any(p in heads for p in layer.parameters(recurse=False))}
    return {layer: layers[layer] for layer in reversed(ended) if layer in layers}


def reach_of(pushed: list[list[list[Tensor]]]) -> Box:
    """Lowest and highest value of each channel, dimension 1; infinite where the value is not held by a bound."""
    box = []
    for place in range(len(pushed[0][0])):
        highest = _end([[leaves[place] for leaves in some] for some in pushed])
        lowest = -_end([[-leaves[place] for leaves in some] for some in pushed])
        box.append((lowest, highest))
    return box


def widened(box: Box, met: list[list[Tensor]]) -> Box:
    """The box with what else the outputs were: how they are fresh, and where their layers are small."""
    return [
        (
            low.minimum(-_highest([-leaves[at] for leaves in met])),
            high.maximum(_highest([leaves[at] for leaves in met])),
        )
        for at, (low, high) in enumerate(box)
    ]


def _end(pushed: list[list[Tensor]]) -> Tensor:
    small, large = map(_highest, pushed)
    # Held against the largest that the channel was, whichever end that is: a probability's least value may go from 0.98
    # to 0 by the draw, while a distance's least value grows with the weights, and can still be small.
    size = small.abs().maximum(_highest([-tensor for tensor in pushed[0]]).abs())
    follows = large.abs() > FOLLOWS * size.clamp(min=1e-3)
    return large.maximum(small).masked_fill(follows, float("inf"))


def _highest(some: list[Tensor]) -> Tensor:
    """Of each channel; what is no number counts as without end."""
    rows = torch.cat([tensor.detach().float().cpu() for tensor in some]).nan_to_num(float("inf"))
    dims = [dim for dim in range(rows.ndim) if dim != 1 or rows.ndim == 1]
    return rows.amax(dims, keepdim=True)
