"""The cost of a model: one total that is the sum of what its steps cost, whichever run paid for them."""

from __future__ import annotations

from collections.abc import Mapping

from trainworthy.lifecycle.protocol.records import STAGES, Cost, Step

# Parts in words, with the steps whose costs they are. Attempts of a training are in its step's.
PARTS: dict[str, tuple[Step, ...]] = {
    "data and preflight": ("dataset", "snapshot", "preflight"),
    "training": STAGES,
    "evaluation": ("evaluation",),
    "judging": ("promotion",),
}


def cost_parts(costs: Mapping[Step, Cost]) -> dict[str, Cost]:
    """The parts of a model's cost, by what each step cost; only parts of which a step is there."""
    parts = {name: [costs[step] for step in steps if step in costs] for name, steps in PARTS.items()}
    return {name: sum(own, Cost()) for name, own in parts.items() if own}
