"""Signs of life between who wants a worker and the node that it runs on: files that one renews and the other reads.

Both see them on the storage that they share, whatever stands between them otherwise, and no clocks are compared: what
counts is that a file changes.
"""

from __future__ import annotations

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
        """Renew it, every BEAT_SECONDS at most. What was withdrawn is not given again."""
        now = time.monotonic()
        if self._given is not None and (now - self._given < BEAT_SECONDS or not self._path.exists()):
            return
        self._given = now
        self._path.write_text(str(time.time_ns()))

    def withdraw(self) -> None:
        """Take it away for good."""
        self._path.unlink(missing_ok=True)


class Seen:
    """A sign that another gives."""

    def __init__(self, path: Path) -> None:
        self._path: Path = path
        self._last: str | None = None
        self._changed = time.monotonic()

    def there(self) -> bool:
        """True if it is given at all. It is opened, since a file server's clients remember what is only looked up."""
        return _content(self._path) is not None

    def silent_seconds(self) -> float:
        """How long it has not changed, from the first look on."""
        content = _content(self._path)
        if content != self._last:
            self._last, self._changed = content, time.monotonic()
        return time.monotonic() - self._changed


def _content(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
