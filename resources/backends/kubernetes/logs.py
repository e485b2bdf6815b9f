"""A pod's log, written to a descriptor while it runs. A stream that breaks is taken up again, no line twice.

Each line comes with the time at which the node took it, which two lines share only by accident. What is lost: what the
node's rotation has removed before it was read, and the last words of a pod that was deleted at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from typing import IO

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes.api import Api, AwayError, NotThereError, lines

# Seconds before what was read last that are asked for again: clocks of machines differ.
AGAIN_SECONDS = 60
# Between two attempts to read on.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# How long an ended pod's last lines are waited for.
LAST_WORDS_SECONDS = 5.0


class LogCopy:
    """Copies a pod's log by a thread of its own, until its container has ended and all is read, or `end` gives up.

    Each line is written behind `prefix`.
    """

    def __init__(self, api: Api, pod: str, descriptor: int, prefix: str = "") -> None:
        self._api, self._pod, self._prefix = api, pod, prefix.encode()
        # Its own: a thread that outlives its run must not write to whatever gets the number next.
        self._output = os.dup(descriptor)
        self._ended, self._give_up = threading.Event(), 0.0
        self._position = Position()
        # Why nothing can be read, to be told by another thread; "" while it can.
        self.trouble = ""
        self._thread = threading.Thread(target=self._copy, name="pod's log", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The container has ended: what can be read in LAST_WORDS_SECONDS is."""
        if not self._ended.is_set():
            self._give_up = time.monotonic() + LAST_WORDS_SECONDS
            self._ended.set()
            self._thread.join(LAST_WORDS_SECONDS)

    def _copy(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        with os.fdopen(self._output, "wb", buffering=0) as output:
            while True:
                # A stream that ends well ends with the container, or with a server that restarts.
                last, before = self._ended.is_set(), self._position.lines
                try:
                    self._read(output)
                    self.trouble, done = "", last
                except NotThereError:
                    return
                except AwayError as error:
                    self.trouble, done = str(error), last and time.monotonic() > self._give_up
                except BackendError as error:
                    self.trouble, done = error.problem, last
                if done:
                    return
                pause = FIRST_PAUSE_SECONDS if self._position.lines > before else min(2 * pause, LONGEST_PAUSE_SECONDS)
                if last:
                    time.sleep(FIRST_PAUSE_SECONDS)
                else:
                    self._ended.wait(pause)

    def _read(self, output: IO[bytes]) -> None:
        with contextlib.closing(self._api.log(self._pod, self._position.since_seconds())) as stream:
            for line in lines(stream):
                self.trouble = ""
                text = self._position.new(line)
                if text is not None:
                    # A full disk, or a terminal that is gone, loses output, never a training.
                    with contextlib.suppress(OSError):
                        output.write(self._prefix + text + b"\n")


class Position:
    """Which `lines` of a log were read: all up to a time, and of that very time so many."""

    def __init__(self) -> None:
        self.lines = 0
        self._time, self._of_it, self._again = b"", 0, 0
        self._read_at: float | None = None

    def since_seconds(self) -> int | None:
        """How many seconds of the log have to be read again, None for all of it; lines come from there from now on."""
        self._again = 0
        return None if self._read_at is None else math.ceil(time.monotonic() - self._read_at) + AGAIN_SECONDS

    def new(self, line: bytes) -> bytes | None:
        """The text of a line that begins with its time; None if it was read before."""
        match = _TIME.match(line)
        if match is None:
            # The node's own words about the log, or the rest of a line whose beginning was lost.
            return line
        time_of_it = match[1] + (match[2] or b"").ljust(9, b"0")
        if time_of_it < self._time:
            return None
        if time_of_it == self._time:
            self._again += 1
            if self._again <= self._of_it:
                return None
            self._of_it = self._again
        else:
            self._time, self._of_it, self._again = time_of_it, 1, 1
        self.lines, self._read_at = self.lines + 1, time.monotonic()
        return line[match.end() :]


# Seconds and up to nine digits of one, as nodes write them without zeros at the end.
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ?")
