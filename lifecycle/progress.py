"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

PLAIN_SECONDS = 5.0
# After so long without a line a person wonders whether anything still happens.
SILENT_SECONDS = 8.0
LOOKS_SECONDS = 1.0
# So long one word of a wait counts: those who wait look every second or two.
WAIT_SECONDS = 5.0


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


class _Shown:
    """When this process, or a worker of it, last wrote to the terminal; and until when it is known to wait."""

    at = time.monotonic()
    waits_until = 0.0


def was_shown() -> None:
    """Something was just written to the terminal by other ways than `say`."""
    _Shown.at = time.monotonic()


def waits() -> None:
    """A machine is waited for, and nothing runs meanwhile; said anew every few seconds."""
    _Shown.waits_until = time.monotonic() + WAIT_SECONDS


def say(line: str) -> None:
    """One plain line about a long step."""
    print(line, file=sys.stderr, flush=True)
    was_shown()


@contextlib.contextmanager
def never_silent(title: str, silent_seconds: float = SILENT_SECONDS) -> Iterator[None]:
    """Whenever nothing was shown for so long, a line says that the work of this title goes on."""
    done, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not done.wait(min(LOOKS_SECONDS, silent_seconds)):
            now = time.monotonic()
            if now - _Shown.at >= silent_seconds:
                doing = "waits for a machine" if now < _Shown.waits_until else "still running"
                say(f"{title}: {doing}, {now - began:.0f} s so far")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
