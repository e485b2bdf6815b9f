"""Work that is done every few seconds by a thread, and that no failure ends: it is tried again."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

from trainworthy.lifecycle.progress import say
from trainworthy.resources.backends.travel.places import TURN_SECONDS

# After so many failures in a row it is told.
TOLD = 3
# How long a turn that hangs may keep a process from its end.
STOP_SECONDS = 10.0
_PAUSE_SECONDS = 1.0


class Moved:
    """When a part came or went last, `at` of the monotonic clock; one that comes or goes again is none."""

    def __init__(self) -> None:
        self._furthest: dict[str, int] = {}
        self.at = time.monotonic()

    def begin(self) -> None:
        """From now on it is waited for."""
        self.at = time.monotonic()

    def note(self, name: str, size: int) -> None:
        """So much of an object is here, or there."""
        if size > self._furthest.get(name, 0):
            self._furthest[name], self.at = size, time.monotonic()


class Turns:
    """Calls `turn`, one at a time; of failures in a row it tells once what they mean.

    `failed_by` is the last one, and `came_at` when a turn came to be last, by the monotonic clock.
    """

    def __init__(self, turn: Callable[[], None], meaning: str, tell: Callable[[str], None] = say) -> None:
        self._turn, self._meaning, self._tell = turn, meaning, tell
        self._alone, self._over, self._failures = threading.Lock(), threading.Event(), 0
        self.failed_by, self.came_at = "", -math.inf

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """By a thread of its own for as long as this process is within."""
        thread = threading.Thread(target=self._run, name="turns of a bucket", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(STOP_SECONDS)

    def insist(self, turn: Callable[[], None], until: Callable[[], float]) -> bool:
        """One turn that comes to be, tried again until that time by the monotonic clock; False if none did by then.

        By a thread of its own: one that hangs, or sends a large file, is waited for no longer.
        """
        came, given_up = threading.Event(), threading.Event()

        def go() -> None:
            while not given_up.is_set():
                with self._alone:
                    if not given_up.is_set() and self._done(turn):
                        came.set()
                        return
                given_up.wait(_PAUSE_SECONDS)

        thread = threading.Thread(target=go, name="last turn of a bucket", daemon=True)
        thread.start()
        try:
            thread.join(_PAUSE_SECONDS)
            while thread.is_alive() and time.monotonic() < until():
                thread.join(_PAUSE_SECONDS)
        finally:
            given_up.set()
        return came.is_set()

    def _run(self) -> None:
        while not self._over.wait(TURN_SECONDS):
            with self._alone:
                if not self._over.is_set():
                    self._done(self._turn)

    def _done(self, turn: Callable[[], None]) -> bool:
        try:
            turn()
        # Whatever it is: the thread goes on, and who waits for the end hears of it.
        except Exception as error:
            self._failures += 1
            self.failed_by = f"{type(error).__name__}: {error}"
            if self._failures == TOLD:
                self._told(f"{self._meaning}, and it is tried again: {self.failed_by}")
            return False
        if self._failures >= TOLD:
            self._told("what failed and was tried again has come to be")
        self._failures, self.failed_by, self.came_at = 0, "", time.monotonic()
        return True

    def _told(self, line: str) -> None:
        told(self._tell, line)


def told(tell: Callable[[str], None], line: str) -> None:
    """Tell it, if it can be: who is told may be away as well (a log on a full disk), and what is done goes on."""
    with contextlib.suppress(Exception):
        tell(line)
