"""Which modules of a network are sharded by themselves: one at a time is whole, while it computes."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

# Their members are called one after the other; of them, those that only hold modules have no pass of their own.
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_NOT_CALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
# A block of more than this share of the weights is divided further, if it has blocks itself: it is whole at a time.
LARGE = 0.5


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The outermost members of lists and sequences that hold parameters, in their order; none if it has no such.

    Left out are those that share a parameter with a module outside of them, as tied weights do: they stay with the rest
    of the model.
    """
    owners: dict[int, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(module)
    return list(_blocks(model, owners, LARGE * _weights(model)))


def largest_share(model: nn.Module, blocks: list[nn.Module]) -> float:
    """The share of all weights that the largest block holds, or what is left beside the blocks."""
    sizes = [_weights(block) for block in blocks]
    return max([*sizes, _weights(model) - sum(sizes)]) / max(1, _weights(model))


def _blocks(module: nn.Module, owners: dict[int, set[nn.Module]], large: float) -> Iterator[nn.Module]:
    for child in module.children():
        inner = list(_blocks(child, owners, large))
        if not (isinstance(module, _LISTS) and _may_stand_alone(child, owners)) or (inner and _weights(child) > large):
            yield from inner
        else:
            yield child


def _may_stand_alone(module: nn.Module, owners: dict[int, set[nn.Module]]) -> bool:
    parts = set(module.modules())
    parameters = list(module.parameters())
    called = not isinstance(module, _NOT_CALLED)
    return called and bool(parameters) and all(owners[id(parameter)] <= parts for parameter in parameters)


def _weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
