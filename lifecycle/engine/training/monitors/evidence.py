"""What a rule from findings to a cause sees, and what it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding

# A spike at most this many updates before is the beginning of what follows.
JUST_BEFORE = 20
# Times all rates before; what a jump does may take so many updates to be told.
JUMP, LATELY = 2.5, 100


@dataclass(frozen=True)
class Context:
    """What is known beside the findings. None is what nobody knows.

    `update_ratio` is the newest change of all weights over their norm, `bad_inputs` whether rows of the batch hold
    values that are not finite, `rate_jumped` whether the schedule made the rate JUMP times what it was from one update
    to the next, and beyond all before, at most LATELY updates before. `game` is True of a loss whose value tells no
    progress. `gradient_wrong` is True where backward was found to give what no healthy training has (true_gradient.py),
    `ascends` where every update that was looked at went along its gradient, and not against it.
    """

    learning_rate: float = 0.0
    largest_rate: float = 0.0
    precision: str = "fp32"
    update_ratio: float | None = None
    bad_inputs: bool | None = None
    rate_jumped: bool = False
    game: bool = False
    gradient_wrong: bool = False
    ascends: bool = False


@dataclass(frozen=True)
class Evidence:
    """Findings by monitor, the earliest of each."""

    findings: dict[str, Finding]
    context: Context

    def any(self, *names: str) -> Finding | None:
        matches = [self.findings[name] for name in names if name in self.findings]
        return min(matches, key=lambda finding: (finding.onset, finding.step)) if matches else None

    def before(self, first: Sequence[str], then: Sequence[str], within: float = math.inf) -> bool:
        """True if one of the first began before one of the others was seen, and at most `within` updates before it."""
        cause, follows = self.any(*first), self.any(*then)
        if cause is None or follows is None:
            return False
        return cause.onset <= follows.step and follows.onset - cause.onset <= within


@dataclass(frozen=True)
class Rule:
    """Without a condition it holds if the first of what it explains was found."""

    name: str
    holds: Callable[[Evidence], object] | None
    cause: str
    fix: str
    explains: tuple[str, ...]
