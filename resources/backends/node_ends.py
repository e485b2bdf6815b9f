"""How a training ended whose nodes a cluster chose: by what each left of its end, and what the cluster saw. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from trainworthy.lifecycle.failure import EXIT_PREEMPTED, EXIT_RANK_LOST, MemorySeen
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.on_node import NodeEnd

# By these a node ends for the sake of the others.
_FOR_OTHERS = (0, EXIT_PREEMPTED, EXIT_RANK_LOST)


def judged(states: Sequence[Ended], words: Sequence[NodeEnd | None], cause: str) -> Ended:
    """How the whole ended: by what the cluster saw of each node, what it has left, and the first `cause`, or ""."""
    first, word = states[0], words[0]
    kills = [end.memory for end in (*states, *words) if end is not None and end.memory.kernel_kills]
    memory = kills[0] if kills else word.memory if word is not None else MemorySeen()
    if len(states) == 1:
        return Ended(first.exit_code, memory, first.seen or (word.seen if word is not None else ""))
    if first.exit_code == 0 or (word is not None and word.exit_code == 0):
        return Ended(0, memory)
    if word is not None and not word.seen:
        # It ended by itself, and so by its agent's judgement of all.
        return Ended(word.exit_code, memory, cause if word.exit_code == EXIT_PREEMPTED else "")
    own = [at for at, end in enumerate(states) if end.exit_code not in _FOR_OTHERS and _by_itself(end)]
    if own:
        return Ended(states[own[0]].exit_code, memory, f"it was {node_of(own[0], states)}")
    preempted = EXIT_PREEMPTED in (first.exit_code, word.exit_code if word is not None else None)
    why = cause or (word.seen if word is not None else "") or first.seen
    return Ended(EXIT_PREEMPTED if preempted else -signal.SIGTERM, memory, why)


def cpu_seconds_of(words: Sequence[NodeEnd | None]) -> float:
    """What the workers of all nodes have used, as far as they have said so."""
    return sum(word.cpu_seconds for word in words if word is not None)


def _by_itself(ended: Ended) -> bool:
    return not ended.seen or bool(ended.memory.kernel_kills)


def node_of(number: int, of: Sequence[object]) -> str:
    """As which an error names one of them."""
    return f"node {number} of {len(of)}"
