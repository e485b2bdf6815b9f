"""The line to the store: how much of files is under way on it at once, so that each request ends in its time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO


class Line:
    """Has room for so many bytes; who wants more of it than is free waits, in turn, and alone has what is larger."""

    def __init__(self, size: int) -> None:
        self._size, self._free = size, size
        # Who waits first goes first, also if it wants all.
        self._first, self._changed = threading.Lock(), threading.Condition()

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[None]:
        """For so many bytes, as long as this process is within."""
        size = min(size, self._size)
        with self._first, self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify()


class Noted:
    """A file that is sent: `note` hears how much of it was taken, part by part; what it raises ends it."""

    def __init__(self, file: BinaryIO, note: Callable[[int], None]) -> None:
        self._file, self._note = file, note
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """The next part."""
        content = self._file.read(size)
        self._note(self._file.tell())
        return content
