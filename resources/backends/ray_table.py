"""Ray's table of nodes: which of them could hold what a job asks for. Pure: nothing here imports Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
