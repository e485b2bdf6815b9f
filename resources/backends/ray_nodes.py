"""The end of a training over several nodes of Ray: of which node it is, and how long the others may take. Pure.

The job's entry (ray_entry.py) asks here; on each node on_node.py leaves its own end as everywhere.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.failure import (
    EXIT_BAD_INPUT,
    EXIT_DISK_FULL,
    EXIT_PREEMPTED,
    EXIT_RANK_LOST,
    EXIT_STORAGE,
    MemorySeen,
)
from trainworthy.resources.backends.backend import SIGNALLED, Ended
from trainworthy.resources.backends.node_ends import judged, node_of
from trainworthy.resources.backends.on_node import NodeEnd
from trainworthy.resources.backends.ray_jobs import MEMORY_WORDS

# What Ray says of a task whose node is gone.
_NODE_WORDS = "the node it was running on is dead"
# The first node judges all: a minute of its own for it, and what an agent waits for others before.
JUDGE_SECONDS = 120.0
# Of Ray's table of nodes (DeathReason in 2.60): it was asked to end, preempted, or taken away as idle.
ASKED_REASONS = (1, 3, 4)
# What the first node says where another one left no word, or where its own agent lost the others.
_OF_LOST_NODES = (-signal.SIGKILL, EXIT_RANK_LOST)
# By these on_node.py says what is wrong with the storage or the job, before a sign of life.
_SAID = (0, EXIT_BAD_INPUT, EXIT_DISK_FULL, EXIT_STORAGE, EXIT_PREEMPTED, SIGNALLED + signal.SIGTERM)


@dataclass(frozen=True)
class TaskEnd:
    """How what ran on a node ended, as Ray saw it: by an exit code, or without one by `lost`, in Ray's words.

    One that `runs` had not ended when its time was over. `reason` and `reason_words` are what Ray's table says of a
    node that is gone, 0 of one that is not known to be.
    """

    exit_code: int | None = None
    lost: str = ""
    runs: bool = False
    reason: int = 0
    reason_words: str = ""

    @property
    def node_gone(self) -> bool:
        """Its node is there no more."""
        return _NODE_WORDS in self.lost

    @property
    def taken_away(self) -> bool:
        """Somebody asked its node to end."""
        return self.exit_code is None and self.reason in ASKED_REASONS

    def ended(self, word: NodeEnd | None = None) -> Ended:
        """In the words of a backend; `word` is what the node has left, which knows whether it was asked to end."""
        if self.exit_code is not None:
            code = SIGNALLED - self.exit_code if self.exit_code > SIGNALLED else self.exit_code
            return Ended(code, MemorySeen(), "" if word is None else word.seen)
        if self.runs:
            return Ended(-signal.SIGKILL, MemorySeen(), "it did not end in its grace, and was killed")
        if MEMORY_WORDS in self.lost:
            return Ended(-signal.SIGKILL, MemorySeen(kernel_kills=1), f"Ray said: {self.lost}")
        said = f"; Ray said: {self.reason_words or self.lost}"
        if self.taken_away:
            return Ended(-signal.SIGTERM, MemorySeen(), f"its node was taken away{said}")
        what = "its node died" if self.node_gone else "what started it on the node ended first"
        return Ended(-signal.SIGKILL, MemorySeen(), f"{what}{said}")


def seconds_for_the_others(ends: Mapping[int, TaskEnd], *, met: bool, first_word: bool) -> float:
    """From the first end of a node to asking the others to end, in seconds.

    None at all where nobody would tell them: before they have met, or after an end of the first one without a word.
    """
    if not met or (0 in ends and not first_word):
        return 0.0
    return JUDGE_SECONDS


def could_not_begin(ends: Sequence[TaskEnd], alive: Sequence[bool], last_lines: Sequence[str]) -> str:
    """Of a node on which nothing came to life, and which did not say why by its exit code: its last words, else ""."""
    for number, end in enumerate(ends):
        never = not alive[number] and not end.node_gone and (end.exit_code is None or end.exit_code not in _SAID)
        if never and MEMORY_WORDS not in end.lost:
            return f"{node_of(number, ends)}: {last_lines[number] or end.lost or f'it ended with {end.exit_code}'}"
    return ""


def judged_of_nodes(ends: Sequence[TaskEnd], words: Sequence[NodeEnd | None], asked: str) -> Ended:
    """How all ended: the first one's judgement, unless a node is gone that only Ray can tell of.

    `asked` says who asked for the end of all, "" if nobody did.
    """
    states, first = [end.ended(word) for end, word in zip(ends, words, strict=True)], words[0]
    gone = sorted((at for at, end in enumerate(ends) if end.exit_code is None), key=lambda at: not ends[at].taken_away)
    if gone and not asked and (first is None or first.seen or first.exit_code in _OF_LOST_NODES):
        state = states[gone[0]]
        return Ended(state.exit_code, state.memory, f"{node_of(gone[0], ends)}: {state.seen}")
    return judged(states, words, asked)
