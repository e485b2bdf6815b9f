"""Beside the ranks of a node while they train: shows that the node lives, and ends them where another's have ended.

torchrun ends the ranks of one machine together, and knows nothing of another. A rank that computes, or hangs by itself,
would not meet for long that there is nobody left to wait for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Container
from pathlib import Path
from types import FrameType, TracebackType

from trainworthy.lifecycle.nodes.meeting import FirstIsGoneError, Meeting
from trainworthy.lifecycle.storage.rank_files import end_others, process_states, read_ends, read_places

# What psutil calls a process that has ended and is not yet waited for.
ZOMBIE = "zombie"
# Between two looks, which are two round trips to the first node for each node.
LOOK_SECONDS = 1.0
# So long the last word may take to the first node: the network may be what has ended the ranks.
OVER_SECONDS = 10.0


class Watch:
    """Looks at the other nodes within `with`, in a thread of its own, for at most `seconds` without an answer.

    `ended` is true once it has asked for the end of this node's ranks, `mine` of them all; `states` are how the system
    had them then, if it was for a hang.
    """

    def __init__(self, meeting: Meeting, out: Path, mine: Container[int], seconds: float) -> None:
        self._meeting, self._out, self._mine, self._seconds = meeting, out, mine, seconds
        self.ended, self.states = False, dict[int, str]()
        self._how, self._left, self._over = "", False, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, _raise_in_agent)
        self._thread.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        # It may wait for a machine that is gone.
        self._thread.join(LOOK_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def leave_ranks(self) -> None:
        """They have ended: what is left is to tell how, which takes seconds, and there is nobody to ask to end."""
        self._left = True
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def over(self, how: str) -> None:
        """Tell the others how this node's ranks have ended, if that can be told."""
        self._how = how
        self._over.set()
        self._thread.join(OVER_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(FirstIsGoneError):
            while not self._over.is_set():
                # A look at a machine that has lost its power never comes back.
                signal.setitimer(signal.ITIMER_REAL, self._seconds)
                self._look()
                self._over.wait(LOOK_SECONDS)
            if self._how:
                self._meeting.over(self._how)
            return
        self._end(hang=False)

    def _look(self) -> None:
        self._meeting.beat()
        for number in self._meeting.node.others:
            how = self._meeting.how(number)
            if how not in ("", "well"):
                self._end(hang=how == "hang")
            elif self._meeting.node.first and not how and self._meeting.silent_seconds(number) > self._seconds:
                self._end(hang=False)

    def _end(self, *, hang: bool) -> None:
        if self.ended or self._left or self._agent_ends_them():
            return
        self.ended = True
        if hang:
            # One of these may be what others have waited for: it is asked where it is.
            self.states = process_states(self._out, self._mine)
            end_others(self._out, self._mine)
        os.kill(os.getpid(), signal.SIGTERM)

    def _agent_ends_them(self) -> bool:
        """True if a rank of this node is gone, not by a good end: a signal would keep its agent from telling how."""
        well = {rank for rank, end in read_ends(self._out, self._mine).items() if end.exit_code == 0}
        states = process_states(self._out, self._mine)
        began = set(read_places(self._out, self._mine)) - well
        return any(states.get(rank, ZOMBIE) == ZOMBIE for rank in began)


def _raise_in_agent(number: int, frame: FrameType | None) -> None:
    """As torchrun's own handler, from before it has one: its agent asks the ranks to end, and kills them later."""
    from torch.distributed.elastic.multiprocessing.api import SignalException

    raise SignalException("the ranks of this node are asked to end", signal.SIGTERM)
