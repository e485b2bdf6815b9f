"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

PLAIN_SECONDS = 5.0


class Progress:
    """Shows how far a counted piece of work has come, and passes plain lines on (for example to Dagster)."""

    def __init__(self, title: str, total: int, start: int = 0, forward: Callable[[str], None] | None = None) -> None:
        self._title, self._total, self._done, self._forward = title, total, start, forward
        self._shown_at = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=start, desc=title, leave=False, file=sys.stderr)

    def advance(self, note: str = "") -> None:
        """One more unit is done; `note` is a short figure such as the loss."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(1)
            if note:
                self._bar.set_postfix_str(note, refresh=False)
        now = time.monotonic()
        if now - self._shown_at >= PLAIN_SECONDS or self._done == self._total:
            self._shown_at = now
            line = f"{self._title}: {self._done}/{self._total} {note}".rstrip()
            if self._bar is None:
                print(line, file=sys.stderr, flush=True)
            if self._forward is not None:
                self._forward(line)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.close()


def say(line: str) -> None:
    """One plain line about a long step."""
    print(line, file=sys.stderr, flush=True)
