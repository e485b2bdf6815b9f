"""A network's outputs on the rows, of which what it makes itself may be replaced by other numbers.

What the outputs keep to, with other weights too, their replacements keep to: see engine/outputs/free_outputs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.outputs.auxiliary import without_auxiliary
from trainworthy.lifecycle.engine.outputs.free_outputs import Link, link_of, same
from trainworthy.lifecycle.engine.outputs.pytree import is_float, row_places
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.training.state import TrainData


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
        row_losses, first = [], 0
        for leaves, batch_targets in zip(self.leaves, targets or self.targets, strict=True):
            chosen = list(leaves)
            for place, value in (values or {}).items():
                chosen[place] = value[first : first + len(batch_targets)].reshape(leaves[place].shape)
            first += len(batch_targets)
            with autocast(self.subject):
                row_losses.append(self.subject.recipe.loss_fn(tree_unflatten(chosen, self.tree), batch_targets).float())
        return torch.cat(row_losses)

    def trees(self) -> list[Any]:
        """The outputs of each batch, as the network gave them."""
        return [tree_unflatten(list(leaves), self.tree) for leaves in self.leaves]

    def spread(self, basis: Tensor | None, parameters: dict[int, Tensor]) -> dict[int, Tensor]:
        """The free leaves as `basis @ parameters`, in the form that the network's have."""
        values = {n: p if basis is None else torch.tensordot(basis, p, 1) for n, p in parameters.items()}
        return {place: self.free[place](value) for place, value in values.items()}

    def whole(self, place: int) -> Tensor:
        """A leaf of all batches, `(N, ...)`, float32; of flat sequences, `(N · T, ...)`, as `(N, T, ...)`."""
        joined = torch.cat([leaves[place] for leaves in self.leaves]).detach().float()
        return joined if len(joined) == self.rows else joined.unflatten(0, (self.rows, -1))


def network_outputs(subject: Subject, model: nn.Module, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """The model's outputs in the mode that it is in."""
    outputs = []
    for rows in batches:
        with autocast(subject):
            outputs.append(tree_flatten(model({name: tensor[rows] for name, tensor in data.inputs.items()})))
    own = row_places(outputs[0][0], len(batches[0]))
    leaves = tuple([leaf.detach() if is_float(leaf) else leaf for leaf in batch_leaves] for batch_leaves, _ in outputs)
    targets = tuple(data.targets[rows] for rows in batches)
    return Outputs(subject, targets, leaves, outputs[0][1], {place: same for place in own})


def linked_outputs(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> Outputs:
    """Outputs of a fresh model, with what they keep to, judged from its weights and from much changed ones."""
    outputs, changed = start_and_changed(subject, data, batches)
    links = {place: link_of([outputs.whole(place), changed.whole(place)]) for place in outputs.free}
    return Outputs(subject, outputs.targets, outputs.leaves, outputs.tree, links)


def start_and_changed(subject: Subject, data: TrainData, batches: Sequence[Tensor]) -> tuple[Outputs, Outputs]:
    """Outputs of a fresh model, and with much changed weights."""
    model = subject.model().eval()
    outputs = network_outputs(subject, model, data, batches)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.5 * torch.randn_like(parameter))
        return outputs, network_outputs(subject, model, data, batches)


def measuring(subject: Subject, start: Outputs) -> Subject:
    """The subject with a loss whose auxiliary terms are held, as one batch of these outputs shows them."""
    several = (n for n, targets in enumerate(start.targets) if not bool((targets == targets[:1]).all()))
    batch = next(several, 0)
    loss_fn = without_auxiliary(subject.recipe.loss_fn, start.trees()[batch], start.targets[batch])
    return replace(subject, recipe=replace(subject.recipe, loss_fn=loss_fn))
