"""What is true of a worker of one pod or several, each of which is in a state of its own (ends.py). Pure.

Pods of one training are its nodes (meeting.py). The agent of the first one judges the end of all (rank_ends.py), and
its exit code is the training's, if it is given the time. What was done to the pods, the first one too, the cluster
tells.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from trainworthy.lifecycle.failure import EXIT_PREEMPTED, EXIT_RANK_LOST, MemorySeen
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes.ends import (
    POD_IS_MADE,
    Refused,
    Runs,
    State,
    Waits,
    WorkerSnapshot,
    has_run,
    is_final,
    is_leaving,
    is_suspended,
    owns,
    queued,
    who_asked,
)
from trainworthy.resources.backends.on_node import NodeEnd

# By these a node ends for the sake of the others.
_FOR_OTHERS = (0, EXIT_PREEMPTED, EXIT_RANK_LOST)


def have_run(snapshots: Sequence[WorkerSnapshot]) -> bool:
    """True once the container of each has begun; of several, while none of them is gone or leaves.

    One that leaves may be taken back, and what a node says then of a container that never was looks like an end.
    """
    several = len(snapshots) > 1
    return all(
        snapshot.pod is not None
        and has_run(snapshot.pod)
        and not (several and (snapshot.deleted or is_leaving(snapshot)))
        for snapshot in snapshots
    )


def state_of_all(snapshots: Sequence[WorkerSnapshot], states: Sequence[State], *, began: bool) -> State:
    """In which state the whole is; `began`: all pods had run at once. How it ended `judged` says.

    Of several it has ended only when none runs any more: the first may have to tell the end yet.
    """
    if len(states) == 1:
        return states[0]
    if not began and not is_final(snapshots[0]):
        # Kueue takes back what has not begun, and all of it comes again.
        if is_suspended(snapshots[0]):
            return queued(snapshots[0])
        states = [_made_again(snapshot, state) for snapshot, state in zip(snapshots, states, strict=True)]
    for at, state in enumerate(states):
        if isinstance(state, Refused):
            return Refused(f"{node_of(at, states)}: {state.problem}", state.fix)
    if ended := one_has_failed(states) or (states[0] if all(isinstance(state, Ended) for state in states) else None):
        return Runs() if any(isinstance(state, Runs) for state in states) else ended
    return _waits(states) or Runs()


def _made_again(snapshot: WorkerSnapshot, state: State) -> State:
    """What a pod that is gone or leaves waits for while its Job goes on: it was taken back, and another comes."""
    taken_back = owns(snapshot) and (snapshot.deleted or is_leaving(snapshot))
    return Waits(POD_IS_MADE) if taken_back and isinstance(state, Ended) and state.exit_code else state


def one_has_failed(states: Sequence[State]) -> Ended | None:
    """The first that has ended, and not well."""
    return next((state for state in states if isinstance(state, Ended) and state.exit_code), None)


def is_ending(snapshots: Sequence[WorkerSnapshot], states: Sequence[State]) -> bool:
    """True once nothing is to be waited for but the end of those that still run.

    That is when one was asked to end or has failed, or the first, which judges, has ended well.
    """
    first_is_over = isinstance(states[0], Ended)
    return first_is_over or one_has_failed(states) is not None or any(map(is_leaving, snapshots))


def first_asked(snapshots: Sequence[WorkerSnapshot]) -> str:
    """Who asked for the end of all or of which node, as half a sentence; "" if nobody is known to.

    To be remembered from when it is first known: the end of one pod is followed by the cluster's end of the others.
    """
    causes = [who_asked(snapshot) for snapshot in snapshots]
    at = next((at for at, who in enumerate(causes) if who), None)
    if at is None or len(set(causes)) == 1:
        return causes[0]
    return f"{node_of(at, snapshots)}: {causes[at]}"


def judged(states: Sequence[Ended], words: Sequence[NodeEnd | None], cause: str) -> Ended:
    """How the whole ended: by the pods' ends, what their nodes have left of them and its first `cause`, or ""."""
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


def _by_itself(ended: Ended) -> bool:
    return not ended.seen or bool(ended.memory.kernel_kills)


def _waits(states: Sequence[State]) -> Waits | None:
    """What they wait for, each that does by its number, unless it is the same for all."""
    waiting = {at: state for at, state in enumerate(states) if isinstance(state, Waits)}
    if not waiting:
        return None
    whats = {state.what for state in waiting.values()}
    together = len(waiting) == len(states) and len(whats) == 1
    waits = whats if together else [f"{node_of(at, states)}: {state.what}" for at, state in waiting.items()]
    return Waits("; ".join(waits), trouble=any(state.trouble for state in waiting.values()))


def node_of(number: int, of: Sequence[object]) -> str:
    """As which an error names one of them."""
    return f"node {number} of {len(of)}"
