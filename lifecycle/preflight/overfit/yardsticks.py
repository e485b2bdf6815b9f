"""What the loss on a few rows is held against, all by the network's own loss function.

Three losses, each the lowest that LBFGS finds: of one output for all rows (what a network reaches that does not look
at its inputs), of a line over a few directions of the inputs, and of a free output for each row, below which no
network can go: label smoothing ends above 0.

Not every output is free: probabilities sum to 1, log-probabilities are logarithms of such. What the network's outputs
keep to, with other weights too, the yardsticks keep to: a free "log-probability" has no lowest loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lifecycle.preflight.outputs import is_float, row_places
from lifecycle.preflight.subject import Subject
from lifecycle.training.loop import TrainData, autocast

if TYPE_CHECKING:
    from torch import Tensor, nn

    Link = Callable[[Tensor], Tensor]

# A line with an eighth as many parameters as there are label values cannot learn the rows by heart. Without a regard
# to classes, 40 directions learned 320 windows of text with 48 characters to 0.03 nats.
LABELS_A_PARAMETER, ITERATIONS = 8, 60
# Rows times parameters of a line: wide outputs get fewer directions.
MOST_DIRECTIONS, LARGEST_LINE = 64, 100_000_000
# Values of a column that are told apart, and the columns of all of them.
LEVELS, WIDEST = 32, 4096


@dataclass(frozen=True)
class Yardsticks:
    """Mean losses on the rows. `bounded` is False if the loss of one output for all rows falls without end."""

    constant: float
    line: float
    floor: float
    bounded: bool


@dataclass(frozen=True, eq=False)
class Outputs:
    """A network's outputs on batches of equal size: a tree of tensors a batch, and which leaves it makes itself.

    What needs no gradient (inputs handed through, masks) is no choice of the network, and stays.
    """

    subject: Subject
    targets: tuple[Tensor, ...]
    leaves: tuple[list[Any], ...]
    tree: Any
    free: dict[int, Link]

    @property
    def rows(self) -> int:
        return sum(len(targets) for targets in self.targets)

    def losses(self, values: dict[int, Tensor] | None = None, targets: Sequence[Tensor] | None = None) -> Tensor:
        """Each row's loss, `(N,)`, with some leaves replaced by tensors `(N, ...)`, or with other targets."""
        import torch
        from torch.utils._pytree import tree_unflatten

        found, first = [], 0
        for leaves, wanted in zip(self.leaves, targets or self.targets, strict=True):
            chosen = list(leaves)
            for place, value in (values or {}).items():
                chosen[place] = value[first : first + len(wanted)].reshape(leaves[place].shape)
            first += len(wanted)
            with mixed(self.subject):
                found.append(self.subject.recipe.loss_fn(tree_unflatten(chosen, self.tree), wanted).float())
        return torch.cat(found)

    def trees(self) -> list[Any]:
        """The outputs of each batch, as the network gave them."""
        from torch.utils._pytree import tree_unflatten

        return [tree_unflatten(list(leaves), self.tree) for leaves in self.leaves]

    def spread(self, basis: Tensor | None, parameters: dict[int, Tensor]) -> dict[int, Tensor]:
        """The free leaves as `basis @ parameters`, in the form that the network's have."""
        import torch

        values = {n: p if basis is None else torch.tensordot(basis, p, 1) for n, p in parameters.items()}
        return {place: self.free[place](value) for place, value in values.items()}

    def whole(self, place: int) -> Tensor:
        """A leaf of all batches, `(N, ...)`, float32; of flat sequences, `(N · T, ...)`, as `(N, T, ...)`."""
        import torch

        found = torch.cat([leaves[place] for leaves in self.leaves]).detach().float()
        return found if len(found) == self.rows else found.unflatten(0, (self.rows, -1))


def network_outputs(subject: Subject, model: nn.Module, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """The model's outputs in the mode that it is in."""
    from torch.utils._pytree import tree_flatten

    found = []
    for rows in batches:
        with mixed(subject):
            found.append(tree_flatten(model({name: tensor[rows] for name, tensor in data.inputs.items()})))
    own = row_places(found[0][0], len(batches[0]))
    leaves = tuple([leaf.detach() if is_float(leaf) else leaf for leaf in one] for one, _ in found)
    targets = tuple(data.targets[rows] for rows in batches)
    return Outputs(subject, targets, leaves, found[0][1], {place: _same for place in own})


def uses_labels(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> bool:
    """Does the loss of the same outputs change with the labels? Where all labels are equal, the claim decides.

    Asked of much changed weights, too: an output of 0 costs the same with either label.
    """
    import torch

    if subject.claims.labels == "unused":
        return False
    targets = torch.cat([data.targets[rows] for rows in batches])
    if bool((targets == targets[:1]).all()):
        return True
    moved = targets[_moved(targets)].split(len(batches[0]))
    seen = _start_and_changed(subject, data, batches)
    return any(not torch.equal(outputs.losses(), outputs.losses(targets=moved)) for outputs in seen)


def _moved(targets: Tensor) -> Tensor:
    """An order that gives many rows the label of another."""
    import torch

    return torch.randperm(len(targets), generator=torch.Generator().manual_seed(1)).to(targets.device)


def measure_yardsticks(
    subject: Subject, data: TrainData, batches: Sequence[Tensor], linked: TrainData | None = None
) -> Yardsticks:
    """The three losses on the rows of the batches.

    What outputs keep to is judged on `linked`, where the inputs of `data` are all alike: equal outputs tell no range.
    """
    import torch

    outputs = linked_outputs(subject, linked or data, batches)
    if linked:
        outputs = replace(network_outputs(subject, subject.model().eval(), data, batches), free=outputs.free)
    whole = {place: outputs.whole(place) for place in outputs.free}

    def lowest(basis: Tensor | None) -> tuple[float, float]:
        """The lowest loss of outputs `basis @ parameters`, or of a parameter a row; and of ten times as far."""
        size = outputs.rows if basis is None else basis.shape[1]
        start = {n: 0.1 * torch.randn(size, *value.shape[1:], device=value.device) for n, value in whole.items()}

        def mean(parameters: dict[int, Tensor]) -> Tensor:
            return outputs.losses(outputs.spread(basis, parameters)).mean()

        found, at = lowest_loss(start, mean)
        with torch.no_grad():
            return found, float(mean({n: start[n] + 10 * (at[n] - start[n]) for n in start}))

    basis = line_basis(data, outputs, batches)
    constant, further = lowest(basis[:, :1])
    line = min(lowest(basis)[0], constant)
    floor, beyond = lowest(None)
    # A likelihood has no lowest value where rows are free to be sure of themselves: the line is what is left.
    floor = line if _endless(floor, beyond) else min(floor, line)
    return Yardsticks(constant, line, floor, bounded=not _endless(constant, further))


def _endless(lowest: float, further: float) -> bool:
    """Does the loss fall on, far beyond where it was found lowest?"""
    return lowest == float("-inf") or further < lowest - max(1.0, abs(lowest))


def line_basis(data: TrainData, outputs: Outputs, batches: Sequence[Tensor]) -> Tensor:
    """Ones, and as many directions of the inputs as the label values and the outputs' size allow, `(N, 1 + K)`."""
    import torch

    wide = max(1, sum(outputs.whole(place)[0].numel() for place in outputs.free))
    labels = sum(targets.numel() for targets in outputs.targets)
    fits = min(labels // (LABELS_A_PARAMETER * wide), LARGEST_LINE // (outputs.rows * wide))
    count = max(1, min(fits, MOST_DIRECTIONS))
    found = directions(data, torch.cat(list(batches)), count)
    return torch.cat([torch.ones(outputs.rows, 1, device=found.device), found], 1)


def lowest_loss(
    start: dict[int, Tensor], mean: Callable[[dict[int, Tensor]], Tensor]
) -> tuple[float, dict[int, Tensor]]:
    """The lowest finite value of `mean` that LBFGS finds from `start`, and the parameters there."""
    import torch

    if not start:
        return float(mean(start)), start
    parameters = {name: value.clone().requires_grad_() for name, value in start.items()}
    best, at = float("inf"), start
    optimizer = torch.optim.LBFGS(
        list(parameters.values()), max_iter=ITERATIONS, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )

    def closure() -> Tensor:
        nonlocal best, at
        optimizer.zero_grad()
        value = mean(parameters)
        value.backward()
        if value.item() < best:
            best, at = value.item(), {name: parameter.detach().clone() for name, parameter in parameters.items()}
        return value

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    return best, at


def directions(data: TrainData, rows: Tensor, count: int) -> Tensor:
    """At most `count` directions of the rows' inputs, `(N, count)`, of unit variance; whole numbers as categories."""
    import torch

    columns = torch.cat([_columns(tensor[rows]) for tensor in data.inputs.values()], 1)
    spread = columns.std(0)
    columns = (columns - columns.mean(0))[:, spread > 1e-9] / spread[spread > 1e-9]
    if columns.shape[1] <= count:
        return columns
    found = torch.pca_lowrank(columns, q=count, center=False)[0]
    return found * len(rows) ** 0.5


def _columns(tensor: Tensor) -> Tensor:
    """An input as float columns, `(N, F)`. Not finite values count as 0."""
    import torch

    flat = tensor.reshape(len(tensor), -1)
    if flat.is_floating_point():
        # Of very wide inputs every so manieth.
        return flat[:, :: max(1, flat.shape[1] // WIDEST)].float().nan_to_num(0, 0, 0)
    flat = flat[:, : WIDEST // LEVELS].long()
    kept = flat.unique(return_counts=True)
    common = kept[0][kept[1].argsort(descending=True)[:LEVELS]]
    return torch.cat([(flat == value).float() for value in common], 1)


def linked_outputs(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """Outputs of a fresh model, with what they keep to, judged from its weights and from much changed ones."""
    outputs, changed = _start_and_changed(subject, data, batches)
    links = {place: _link([outputs.whole(place), changed.whole(place)]) for place in outputs.free}
    return Outputs(subject, outputs.targets, outputs.leaves, outputs.tree, links)


def _start_and_changed(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> tuple[Outputs, Outputs]:
    """Outputs of a fresh model, and with much changed weights."""
    import torch

    model = subject.model().eval()
    outputs = network_outputs(subject, model, data, batches)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.5 * torch.randn_like(parameter))
        return outputs, network_outputs(subject, model, data, batches)


def _link(seen: Sequence[Tensor]) -> Link:
    """What turns any numbers into outputs such as the seen ones."""
    import torch
    from torch.nn import functional

    shape = seen[0].shape
    for dim in {1, len(shape) - 1} if len(shape) > 1 else ():
        found = _link_along(seen, dim) if shape[dim] > 1 else None
        if found is not None:
            return found
    values = torch.cat([_finite(tensor) for tensor in seen])
    if bool((values < 0).any()):
        return _same
    return torch.sigmoid if bool((values <= 1).all()) else functional.softplus


def _link_along(seen: Sequence[Tensor], dim: int) -> Link | None:
    """Probabilities, log-probabilities or a direction along a dimension."""
    import torch
    from torch.nn import functional

    def is_one(reduced: Sequence[Tensor]) -> bool:
        values = torch.cat([_finite(tensor) for tensor in reduced])
        return len(values) > 0 and bool(((values - 1).abs() < 0.02).all())

    if is_one([t.sum(dim) for t in seen]) and not any(bool((_finite(t) < 0).any()) for t in seen):
        return lambda t: t.softmax(dim)
    if is_one([t.exp().sum(dim) for t in seen]):
        return lambda t: t.log_softmax(dim)
    return (lambda t: functional.normalize(t, dim=dim)) if is_one([t.norm(dim=dim) for t in seen]) else None


def _finite(tensor: Tensor) -> Tensor:
    import torch

    return tensor[torch.isfinite(tensor)]


def mixed(subject: Subject) -> Any:
    """The precision that the recipe declares."""
    return autocast(subject.recipe.precision, subject.training.targets.device.type)


def _same(tensor: Tensor) -> Tensor:
    return tensor
