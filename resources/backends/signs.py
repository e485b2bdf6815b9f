"""Signs of life between who wants a worker and the node that it runs on: files that one renews and the other reads.

Both see them on the storage that they share, whatever stands between them otherwise, and no clocks are compared: what
counts is that a file changes.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

# Between two signs.
BEAT_SECONDS = 10.0


class Given:
    """A sign that this process gives."""

    def __init__(self, path: Path) -> None:
        self._path: Path = path
        self._given: float | None = None

    def give(self) -> None:
        """Renew it, every BEAT_SECONDS at most. What was withdrawn is not given again.

        Storage that is away is no end of the work: the other side judges how long it hears nothing.
        """
        now = time.monotonic()
        if self._given is not None and (now - self._given < BEAT_SECONDS or not self._path.exists()):
            return
        self._given = now
        with contextlib.suppress(OSError):
            self._path.write_text(str(time.time_ns()))

    def withdraw(self) -> None:
        """Take it away for good, as far as the storage answers."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class Seen:
    """A sign that another gives."""

    def __init__(self, path: Path) -> None:
        self._path: Path = path
        self._last: str | None = None
        # Until it was looked for it is there, as far as anybody knows.
        self._known: str | None = ""
        self._changed = time.monotonic()

    def there(self) -> bool:
        """True if it is given at all. It is opened, since a file server's clients remember what is only looked up."""
        return self._content() is not None

    def silent_seconds(self) -> float:
        """How long it has not changed, from the first look on."""
        content = self._content()
        if content != self._last:
            self._last, self._changed = content, time.monotonic()
        return time.monotonic() - self._changed

    def _content(self) -> str | None:
        """None where there is no file; what it was the last time where the storage does not answer."""
        try:
            self._known = self._path.read_text()
        except FileNotFoundError:
            self._known = None
        except OSError:
            return self._known
        return self._known
