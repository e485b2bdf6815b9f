"""Signs of life between who wants a worker and the node that it runs on: files that one renews and the other reads.

Both see them on the storage that they share, whatever stands between them otherwise. Whether somebody is there is told
by no clock: what counts is that a file changes. Its content is the time at which it was given, for who asks how far
apart the two clocks are.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from trainworthy.lifecycle.progress import say

# Between two signs.
BEAT_SECONDS = 10.0


class Sign(Protocol):
    """What is renewed for as long as somebody is there, and then taken away."""

    def give(self) -> None: ...
    def withdraw(self) -> None: ...


class Given:
    """A sign that this process gives."""

    def __init__(self, path: Path) -> None:
        self._path: Path = path
        self._tried: float | None = None
        # Whether it was ever there, and is to be no more.
        self._given, self._withdrawn = False, False

    def give(self) -> None:
        """Renew it, every BEAT_SECONDS at most. What was withdrawn, here or by another, is not given again.

        Storage that is away is no end of the work: it is tried again at the next beat, and the other side judges how
        long it hears nothing.
        """
        now = time.monotonic()
        if self._withdrawn or (self._tried is not None and now - self._tried < BEAT_SECONDS):
            return
        self._tried = now
        # What is there already is opened and not made; its length stays, so that nobody reads a part of it.
        with contextlib.suppress(OSError), self._path.open("r+" if self._given else "w") as file:
            file.write(str(time.time_ns()))
            self._given = True

    def withdraw(self) -> None:
        """Take it away for good, as far as the storage answers."""
        self._withdrawn = True
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def kept_up(*signs: Sign) -> Iterator[None]:
    """Gives signs by a thread of its own for as long as this process is within, whatever it waits for; then no more.

    No error ends the thread, since the worker would end for want of signs: the first one is said.
    """
    over = threading.Event()

    def give() -> None:
        told = False
        while not over.wait(BEAT_SECONDS / 5):
            for sign in signs:
                try:
                    sign.give()
                except Exception as error:
                    if not told:
                        say(f"a sign of life could not be given, and is tried again: {type(error).__name__}: {error}")
                    told = True

    for sign in signs:
        sign.give()
    thread = threading.Thread(target=give, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # Else it might give one anew that is withdrawn here. On storage that is away it may wait for long.
        thread.join(BEAT_SECONDS)
        for sign in signs:
            sign.withdraw()


class ObservedSign:
    """A sign that another gives."""

    def __init__(self, path: Path) -> None:
        self._path: Path = path
        self._last: str | None = None
        self._silent, self._looked = 0.0, time.monotonic()
        # Until it was looked for it is there, as far as anybody knows.
        self._known: str | None = ""
        self._answered = False

    def there(self) -> bool:
        """True if it is given at all. It is opened, since a file server's clients remember what is only looked up."""
        return self._content() is not None

    def given_at(self) -> float | None:
        """When it was last given, as Unix time by the clock of who gives it; None where that is not known."""
        content = self._content()
        return int(content) / 1e9 if content and content.isdecimal() else None

    def silent_seconds(self) -> float:
        """How long it has not changed while it was looked at, from the first look on.

        A time in which nobody could look is none of silence: storage that was away, a process that was stopped. Of a
        pause between two looks no more counts than a sign may take.
        """
        content, now = self._content(), time.monotonic()
        if content != self._last:
            self._last, self._silent = content, 0.0
        elif self._answered:
            self._silent += min(now - self._looked, BEAT_SECONDS)
        self._looked = now
        return self._silent

    def _content(self) -> str | None:
        """None where there is no file; what it was the last time where the storage does not answer."""
        try:
            self._known = self._path.read_text()
        except FileNotFoundError:
            self._known = None
        except OSError:
            self._answered = False
            return self._known
        self._answered = True
        return self._known
