"""Can the outputs go where the loss wants them, and can predictions? A squashed output that is squashed again can not.

The last layers are blown up by factors of thousands: an output that does not follow is confined, and its reach is what
was seen. Then each row's loss is minimised over the outputs themselves, within that reach and freely. No parameter is
trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lifecycle.preflight.check import Found
from lifecycle.preflight.outputs import row_places
from lifecycle.preflight.subject import Subject, take
from lifecycle.preflight.wiring.passes import FEW_ROWS, few, forward, stirred
from lifecycle.training.loop import TrainData

if TYPE_CHECKING:
    from torch import Tensor, nn

# Rows among which different targets are looked for.
SEARCHED = 1024
LAST_LAYERS, DRAWS, FACTORS = 3, 4, (10.0, 1000.0)
# An output that follows grows a hundredfold between the two factors, one that is confined not at all.
FOLLOWS = 1.5
# Share of the loss's room that the reach costs. Measured: sigmoid or softmax twice 0.5 to 1, a clamp at 10 0.0001.
TOO_FAR, WITHIN = 0.1, 0.02
ITERATIONS = 120

Box = list[tuple["Tensor", "Tensor"]]


def logits(subject: Subject) -> Found:
    """Loss at the best outputs within reach against the best of all, and the ends that predictions reach."""
    if subject.claims.rows == "together":
        return Found("not_applicable", "declared: the loss compares rows, so that no row has a best output of its own")
    from torch.utils._pytree import tree_leaves

    model, data = stirred(subject.model()).eval(), _different_rows(subject)
    base, ended = _traced(model, data)
    places = row_places(tree_leaves(base), len(data.targets))
    if not places:
        return Found("not_applicable", "no output has a part of each row, so that no row has a best output of its own")
    pushed = _pushed(model, data, _last_layers(ended, _chosen(base, places)))
    box = _reach([[_chosen(one, places) for one in some] for some in pushed])
    if all(not bool(low.isfinite().any() | high.isfinite().any()) for low, high in box):
        return Found("pass", "outputs are not confined: they follow the last layers' size without bound", "none")
    reach = f"outputs stay within {_told(box)}"
    blocked = _predictions(subject, pushed)
    if blocked is not None:
        told = f"{reach}, so that predictions stay within {blocked[0]:.3g} and {blocked[1]:.3g}"
        return Found("fail", told, blocked[1], 1.0)
    return _judged(subject, base, places, box, data, reach)


def _judged(subject: Subject, base: Any, places: list[int], box: Box, data: TrainData, reach: str) -> Found:
    """Whether the loss within reach comes near to its own minimum."""
    loss_of = _loss_of(subject, base, places, data.targets)
    start = [output.detach().float().cpu() for output in _chosen(base, places)]
    try:
        now = float(loss_of(start).detach().mean())
        within = _minimum(loss_of, start, box)
        free = _minimum(loss_of, start, _endless(box))
    except (RuntimeError, ValueError):
        return Found("pass", f"{reach}, and the loss takes no others")
    if within is None or free is None or free < min(0.0, within) - 0.01:
        return Found("pass", f"{reach}, and the loss needs it: without, it has no lower bound")
    share = (within - free) / max(now - free, 1e-6)
    told = f"{reach}: the loss of {len(data.targets)} rows can't fall below {within:.4g}; its own minimum is {free:.4g}"
    if share > TOO_FAR:
        return Found("fail", told, share, TOO_FAR)
    if share > WITHIN:
        return Found("insufficient", f"{told}, which may be meant", share, WITHIN)
    return Found("pass", f"{reach}, which lets the loss fall to {within:.4g} of at least {free:.4g}", share, TOO_FAR)


def _endless(box: Box) -> Box:
    return [(low.new_full(low.shape, -float("inf")), high.new_full(high.shape, float("inf"))) for low, high in box]


def _different_rows(subject: Subject) -> TrainData:
    """A few rows, of as many different targets as there are."""
    import torch

    known = few(subject, SEARCHED)
    targets = known.targets
    keys = targets.flatten(1).double().mean(1) if targets.ndim > 1 else targets.double()
    values, first = keys.cpu().unique(return_inverse=True)
    order = first.argsort(stable=True)
    starts = torch.linspace(0, len(order) - 1, min(FEW_ROWS, len(order))).round().long()
    rows = order[starts]
    if 1 < len(values) <= FEW_ROWS // 2:
        # Of a rare label, too.
        rows[: len(values)] = torch.stack([(first == value).int().argmax() for value in range(len(values))])
    return take(known, rows.to(targets.device))


def _chosen(outputs: Any, places: list[int]) -> list[Tensor]:
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(outputs)
    return [leaves[at] for at in places]


def _pushed(model: nn.Module, data: TrainData, layers: dict[nn.Module, bool]) -> list[list[Any]]:
    """Outputs by factor, each for some random signs of the layers, and for the opposite ones of each output's last."""
    import torch

    own = [(last, p, p.detach().clone()) for layer, last in layers.items() for p in layer.parameters(recurse=False)]
    given = []
    with torch.no_grad():
        for factor in FACTORS:
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


def _traced(model: nn.Module, data: TrainData) -> tuple[Any, list[nn.Module]]:
    """The outputs, with their graph, and the layers with parameters of their own, the one that ended last first."""
    ended: list[nn.Module] = []
    handles = [
        module.register_forward_hook(lambda module, *_: ended.append(module))
        for module in model.modules() if next(module.parameters(recurse=False), None) is not None
    ]  # fmt: skip
    for parameter in model.parameters():
        # A frozen layer bounds an output as well as one that trains.
        parameter.requires_grad_(parameter.is_floating_point())
    try:
        base = forward(model, data.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return base, list(dict.fromkeys(reversed(ended))) or [model]


def _last_layers(ended: list[nn.Module], outputs: list[Tensor]) -> dict[nn.Module, bool]:
    """The layers that end last on the way to each output, in the order of the pass; whether one is an output's last."""
    found: dict[nn.Module, bool] = {}
    for output in outputs:
        reached = _parameters_of(output)
        ways = [layer for layer in ended if any(p in reached for p in layer.parameters(recurse=False))]
        # Where nothing is seen, the way is hidden, as by a reentrant checkpoint.
        for place, layer in enumerate((ways or ended)[:LAST_LAYERS]):
            found[layer] = found.get(layer, False) or place == 0
    return {layer: found[layer] for layer in reversed(ended) if layer in found}


def _parameters_of(output: Tensor) -> set[Any]:
    """The parameters that the output's graph leads to."""
    found, seen, waiting = set(), set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found.add(getattr(node, "variable", None))
        waiting += [following for following, _ in node.next_functions]
    return found


def _reach(pushed: list[list[list[Tensor]]]) -> Box:
    """Lowest and highest value of each channel, dimension 1; infinite where the value is not held by a bound."""
    box = []
    for place in range(len(pushed[0][0])):
        highest = _end([[one[place] for one in some] for some in pushed])
        lowest = -_end([[-one[place] for one in some] for some in pushed])
        box.append((lowest, highest))
    return box


def _end(pushed: list[list[Tensor]]) -> Tensor:
    import torch

    def highest(some: list[Tensor]) -> Tensor:
        rows = torch.cat([one.detach().float().cpu() for one in some]).nan_to_num(float("inf"))
        dims = [dim for dim in range(rows.ndim) if dim != 1 or rows.ndim == 1]
        return rows.amax(dims, keepdim=True)

    small, large = (highest(some) for some in pushed)
    # A value that draws back is no bound either: all distances grow with the weights, and can still be small.
    follows = (large - small).abs() > (FOLLOWS - 1) * small.abs().clamp(min=1e-3)
    return large.maximum(small).masked_fill(follows, float("inf"))


def _loss_of(subject: Subject, base: Any, places: list[int], targets: Tensor) -> Callable[[list[Tensor]], Tensor]:
    """The losses (N,) of outputs, given as the tensors at places. On the CPU: CUDA dies of what a loss refuses."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, structure = tree_flatten(base)
    leaves = [leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def loss_of(outputs: list[Tensor]) -> Tensor:
        for at, output in zip(places, outputs, strict=True):
            leaves[at] = output
        return subject.recipe.loss_fn(tree_unflatten(leaves, structure), targets.cpu())

    return loss_of


def _minimum(loss_of: Callable[[list[Tensor]], Tensor], start: list[Tensor], box: Box) -> float | None:
    """Lowest mean loss over outputs within the box, by Rprop: steps that grow while the gradient keeps its sign.

    None if the loss is not finite on the way.
    """
    import torch

    outputs = [value.clamp(low, high) for value, (low, high) in zip(start, box, strict=True)]
    steps = [value.abs().clamp(min=0.1) * 0.1 for value in outputs]
    before = [torch.zeros_like(value) for value in outputs]
    best = float("inf")
    for _ in range(ITERATIONS):
        leaves = [value.detach().requires_grad_() for value in outputs]
        loss = loss_of(leaves).mean()
        if not bool(loss.isfinite()):
            return None
        best = min(best, float(loss.detach()))
        if not loss.requires_grad:
            return best
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        for at, gradient in enumerate(found):
            if gradient is None:
                continue
            sign = gradient.nan_to_num(0.0).sign()
            agree = sign * before[at]
            steps[at] = (steps[at] * agree.add(1).mul(0.4).add(0.5).where(agree != 0, torch.ones(()))).clamp(1e-9, 1e6)
            outputs[at] = (outputs[at] - sign * steps[at]).clamp(*box[at])
            before[at] = sign
    return best


def _predictions(subject: Subject, pushed: list[list[Any]]) -> tuple[float, float] | None:
    """Lowest and highest predicted probability over all pushes, if they leave out an end."""
    import torch

    if subject.predict is None:
        return None
    with torch.no_grad():
        found = torch.cat([subject.predict(one).reshape(-1).float() for some in pushed for one in some])
    low, high = float(found.min()), float(found.max())
    return (low, high) if low > TOO_FAR or high < 1 - TOO_FAR else None


def _told(box: Box) -> str:
    low, high = min(float(low.min()) for low, _ in box), max(float(high.max()) for _, high in box)
    return f"{low:.4g} and {high:.4g}"
