"""The processes that train one model together: what each tells of where it is and how it ended."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field

from trainworthy.lifecycle.spec.frozen import Frozen

# In the order in which an update passes them.
Phase = Literal["prepare", "start", "order", "script", "forward", "backward", "losses", "verdict", "after"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class RankPlace(Frozen):
    """Where a rank's process was last: in which phase of which update, since how many seconds.

    `passes` counts the blocks of a sharded network that it has come to in this phase.
    """

    pid: int
    step: int
    phase: Phase
    seconds: float
    passes: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """The smaller, the further behind."""
        return self.step, PHASES.index(self.phase), self.passes


class RankEnd(Frozen):
    """How a rank's process ended: its exit code (negative: a signal), what it told, and how it saw the others.

    `states` are the processes of other ranks of its machine as the system has them, by rank: running, stopped, gone …
    """

    pid: int
    host: str
    exit_code: int
    told: dict[str, Any] | None = None
    states: dict[int, str] = Field(default_factory=dict)


class NodeReport(Frozen):
    """What one of several nodes tells of its ranks once they have ended: no other sees their processes.

    `ends` are those known, `places` where each was, `lines` those of code at which they were when they hung; by rank.
    """

    host: str
    ends: dict[int, RankEnd] = Field(default_factory=dict)
    places: dict[int, RankPlace] = Field(default_factory=dict)
    lines: dict[int, str] = Field(default_factory=dict)


def ranks_of(node: int, nodes: int, processes: int) -> range:
    """The ranks of one of so many nodes, 0 the first; each has as many."""
    each = processes // nodes
    return range(node * each, (node + 1) * each)
