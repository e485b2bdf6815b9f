"""Signals that ask a process to end, as an exception: what was begun is taken back, as after any other failure.

`docker stop`, a node that is drained and a terminal that is closed send them, and Python's own answer is to be gone at
once: databases would stay filled and a half of a copy lie there, since no `finally` runs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainworthy.lifecycle.progress import say

_ASKING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def taken_back(command: str) -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise SystemExit with 128 and the signal's number, as a shell has it.

    A second one is ignored, so that taking back is not ended in its middle. One that was ignored before stays so:
    `nohup`. In the main thread alone.
    """
    received: list[int] = []

    def raised(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: old for number in _ASKING if (old := signal.getsignal(number)) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, raised)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if received:
            say(f"{command}: ended by {signal.Signals(received[0]).name}; what it had begun was taken back")


@contextmanager
def undisturbed() -> Iterator[None]:
    """For short work that has to come to its end: a signal that comes meanwhile is ignored."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ASKING}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
