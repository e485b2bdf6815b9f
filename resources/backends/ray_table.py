"""Ray's table of nodes: which of them could hold what a job asks for, and so how many an attempt has.

Pure: nothing here imports Ray. No clock decides: a node that others use counts, since it is worth the wait, and one
that is gone does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainworthy.resources.backends.backend import Size


@dataclass(frozen=True)
class RayNode:
    """A node as Ray's table has it: whether it is alive, and all its resources by Ray's names, free or taken."""

    alive: bool
    resources: Mapping[str, float]

    def holds(self, bundle: Mapping[str, float]) -> bool:
        """True if it is alive and has all of this, whoever uses it just now."""
        return self.alive and all(self.resources.get(name, 0.0) >= amount for name, amount in bundle.items())


def holding(table: Iterable[RayNode], bundle: Mapping[str, float]) -> int:
    """How many nodes could hold the bundle if nobody else used them."""
    return sum(node.holds(bundle) for node in table)


@dataclass(frozen=True)
class Elasticity:
    """A training by at most `nodes` goes on with `least` of them; each has so many processes."""

    least: int
    nodes: int
    each: int

    def nodes_of(self, processes: int) -> int:
        """On how many nodes so many processes are."""
        return max(1, processes // self.each)

    def size(self, table: Iterable[RayNode], bundle: Mapping[str, float]) -> Size:
        """What an attempt has: all nodes that could hold the bundle, within what is declared."""
        taken = min(max(holding(table, bundle), self.least), self.nodes)
        return Size(taken, self.nodes, taken * self.each)
