"""Streams, files that only grow and that somebody reads as they do: by chunks, which hold whole lines.

Who reads Pipes' messages dies of half a line. So a chunk ends with a line's end, and of one that is longer than a chunk
nothing is written before all of it came.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.travel.places import Gate, chunk

# Of a stream a request carries so much: it has its time beside those of files.
CHUNK_BYTES = 2**20


class StreamsSent:
    """The node's: has what comes to its streams in the bucket; `note` hears of each chunk that went."""

    def __init__(self, bucket: Bucket, prefix: str, note: Callable[[str, int], None]) -> None:
        self._bucket, self._prefix, self._note = bucket, prefix, note
        # Of each how far it was sent, and the bytes that are being sent: once begun, always the same.
        self._at: dict[str, int] = {}
        self._chunks: dict[str, bytes] = {}

    def send(self, name: str, path: Path, *, ended: bool) -> int:
        """Send what came to it, at its end also half a line; how long it is there now. Raises OSError."""
        at = self._at.get(name, 0)
        while new := self._chunks.get(name) or _read(path, at, ended=ended):
            self._chunks[name] = new
            self._bucket.put(f"{self._prefix}/{chunk(name, at)}", new)
            self._at[name] = at = at + len(self._chunks.pop(name))
            self._note(name, at)
        return at


class StreamsReceived:
    """The launcher's: writes below `out` what came, while `gate` is open."""

    def __init__(self, bucket: Bucket, prefix: str, out: Path, gate: Gate, note: Callable[[str, int], None]) -> None:
        self._bucket, self._prefix, self._out, self._gate, self._note = bucket, prefix, out, gate, note
        # Of each how much came, and what of it is not written yet: the beginning of a line.
        self._at: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}
        self._alone = threading.Lock()

    def append(self, name: str, length: int, *, whole: bool) -> None:
        """Write the lines that came, if `whole` also half of one; what a full disk has cut off is written again.

        Raises OSError.
        """
        with self._alone:
            self._append(name, length, whole=whole)

    def _append(self, name: str, length: int, *, whole: bool) -> None:
        at = self._at.get(name, 0)
        while at < length:
            stored = self._bucket.read(key := f"{self._prefix}/{chunk(name, at)}")
            if stored is None or not stored[0]:
                raise OSError(errno.EIO, "a part of a stream is missing", key)
            rest = self._rest.get(name, b"")
            lines, end, begun = (rest + stored[0]).rpartition(b"\n")
            self._write(self._out / name, at - len(rest), lines + end)
            self._rest[name] = begun
            self._at[name] = at = at + len(stored[0])
            self._note(f"{self._prefix}/{name}", at)
        if whole and (rest := self._rest.get(name)):
            self._write(self._out / name, at - len(rest), rest)
            del self._rest[name]

    def _write(self, path: Path, at: int, lines: bytes) -> None:
        with self._gate.open():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            with path.open("r+b", buffering=0) as file:
                file.seek(at)
                # Each by a call of its own: who reads meanwhile hardly ever sees a half of one.
                for line in lines.splitlines(keepends=True):
                    if file.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _read(path: Path, at: int, *, ended: bool) -> bytes:
    """What a request carries of a stream from there on; b"" if there is no more, or no line that is whole."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            content = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
    lines = content[: content.rfind(b"\n") + 1]
    # One that is longer than a chunk goes in several.
    return lines or (content if ended or len(content) == CHUNK_BYTES else b"")
