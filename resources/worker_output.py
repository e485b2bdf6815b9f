"""Copies what a worker writes on stdout and stderr to files, beside the terminal.

A worker's output goes to the terminal as it comes: through a pseudo terminal where this process has one, so that a
progress bar stays a bar. The files get whole lines; of a bar's redraws they get none. A full disk loses output, never
a training.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from trainworthy.lifecycle.progress import was_shown

CHUNK_BYTES = 65_536
# How long a process that left the worker's group may hold its output open before the step goes on without it.
LAST_WORDS_SECONDS = 5.0
Descriptors = tuple[int, int]
TERMINAL: Descriptors = (1, 2)


@runtime_checkable
class KeepsWorkers(Protocol):
    """Dagster's manager of captured output, if it keeps that of workers (compute_logs.py)."""

    def worker_files(self) -> Descriptors | None: ...


@contextlib.contextmanager
def kept_output(manager: object, title: str) -> Iterator[Descriptors]:
    """Descriptors of stdout and stderr for a worker, whose output the instance's manager keeps under the title.

    Those of this process where another manager keeps none, or all that this process writes.
    """
    files = manager.worker_files() if isinstance(manager, KeepsWorkers) else None
    if files is None:
        yield TERMINAL
        return
    with contextlib.ExitStack() as stack:
        copied = (_copied(number, file, title) for number, file in zip(TERMINAL, files, strict=True))
        out, error = (stack.enter_context(descriptor) for descriptor in copied)
        yield out, error


@contextlib.contextmanager
def _copied(terminal: int, file: int, title: str) -> Iterator[int]:
    """A descriptor for the worker; what is written to it goes to the terminal's and, as lines, to the file's.

    The file is closed by the thread that copies, which may outlive this.
    """
    read, write = _terminal_like(terminal) if os.isatty(terminal) else os.pipe()
    _write(file, f"== {title}\n".encode())
    copier = threading.Thread(target=_copy, args=(read, terminal, file), daemon=True)
    copier.start()
    try:
        yield write
    finally:
        os.close(write)
        copier.join(LAST_WORDS_SECONDS)


def _terminal_like(terminal: int) -> Descriptors:
    """Both ends of a pseudo terminal as wide as the terminal, which changes nothing that passes through it."""
    import fcntl
    import termios
    import tty

    read, write = os.openpty()
    tty.setraw(write)
    size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, b"\0" * 8)
    fcntl.ioctl(write, termios.TIOCSWINSZ, size)
    return read, write


def _copy(read: int, terminal: int, file: int) -> None:
    rest = b""
    with os.fdopen(read, "rb", buffering=0), os.fdopen(file, "ab", buffering=0):
        while chunk := _chunk(read):
            _write(terminal, chunk)
            was_shown()
            text, rest = whole_lines(rest + chunk)
            _write(file, text)
        _write(file, whole_lines(rest + b"\n")[0] if rest else b"")


def whole_lines(output: bytes) -> tuple[bytes, bytes]:
    """The whole lines as a terminal shows them in the end, without what a carriage return wrote over; and the rest."""
    *lines, rest = output.split(b"\n")
    shown = b"".join(line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n" for line in lines)
    drawn = rest.rstrip(b"\r")
    return shown, drawn.rpartition(b"\r")[2] + rest[len(drawn) :]


def _chunk(read: int) -> bytes:
    """Empty at the end, which a pseudo terminal tells by an error."""
    try:
        return os.read(read, CHUNK_BYTES)
    except OSError:
        return b""


def _write(descriptor: int, text: bytes) -> None:
    """All of it, or what the terminal or the disk takes."""
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(descriptor, text) :]
