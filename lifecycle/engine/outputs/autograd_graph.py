"""Which tensors an output was made of, by its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def leaves_of(output: Tensor) -> Iterator[Tensor]:
    """The tensors at which the output's graph ends; parameters, for one."""
    for node in nodes(output):
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf


def nearest_leaves(output: Tensor) -> set[Tensor]:
    """Of each way back from the output, the leaves of the first operation that has some."""
    return {leaf for node in nodes(output, _leaves_of) for leaf in _leaves_of(node)}


def _leaves_of(node: Any) -> set[Tensor]:
    return {leaf for leaf in map(_leaf, _before(node)) if leaf is not None}


def _leaf(node: Any) -> Any:
    """The leaf that a node stands for, transposed or reshaped; None if it is made of more."""
    while len(node.next_functions) == 1 and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


def nodes(output: Tensor, ends: Callable[[Any], object] = lambda node: False) -> Iterator[Any]:
    """All nodes of the output's graph once, but for what lies behind those that end a way."""
    waiting, visited = [output.grad_fn], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        yield node
        waiting += [] if ends(node) else _before(node)


def _before(node: Any) -> list[Any]:
    return [following for following, _ in node.next_functions if following is not None]
