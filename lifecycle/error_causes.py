"""What an error that ended a training says: memory, storage, and whether it came up through an update. No torch."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from types import TracebackType

# What a network or its file server gives while it is away; a missing file or a refused right stays.
_PASSES = (
    "EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ENETDOWN",
    "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "EREMOTEIO", "ENOLINK",
)  # fmt: skip
PASSING_ERRNOS = frozenset(getattr(errno, name) for name in _PASSES if hasattr(errno, name))
# torch tells of memory in a RuntimeError's words, on a CPU and in cuBLAS.
_MEMORY_WORDS = (
    "can't allocate memory", "Cannot allocate memory", "out of memory", "std::bad_alloc", "CUBLAS_STATUS_ALLOC_FAILED",
)  # fmt: skip


# CUDA's, after which the process can compute nothing more on that device.
_DEAD_DEVICE_WORDS = ("device-side assert", "illegal memory access")
_GLOO = ("gloo/", "[c10d]", "Gloo", "Connection closed by peer")
_LATE = ("Timed out", "timed out", "timeout", "Timeout")


class PreemptedError(Exception):
    """Asked to end (SIGTERM); the checkpoint at the step boundary is written."""


class BatchError(Exception):
    """What a loader met while it made a batch: type, message and the line of the use case's code."""


def ran_out_of_memory(error: BaseException) -> bool:
    """True if the error, or one that it was raised for, says that memory could not be had. Imports no torch."""
    return any(
        isinstance(cause, MemoryError)
        or any(kind.__name__ == "OutOfMemoryError" for kind in type(cause).__mro__)
        or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        or (isinstance(cause, RuntimeError) and any(words in str(cause) for words in _MEMORY_WORDS))
        for cause in _chain(error)
    )


def ended_its_device(error: BaseException) -> bool:
    """True if the error, or one that it was raised for, says that a kernel failed in a way that ends CUDA here."""
    return any(
        isinstance(cause, RuntimeError) and any(words in str(cause) for words in _DEAD_DEVICE_WORDS)
        for cause in _chain(error)
    )


def lost_rank(error: BaseException) -> str | None:
    """`left` if the error, or one that it was raised for, says that another rank is gone, `late` if it gave no answer.

    torch has classes for NCCL and stores; gloo tells it in a RuntimeError's words. None of any other error.
    """
    for cause in _chain(error):
        of_torch = any(kind.__name__ == "DistError" for kind in type(cause).__mro__)
        words = str(cause)
        if not (of_torch or (isinstance(cause, RuntimeError) and any(mark in words for mark in _GLOO))):
            continue
        return "late" if any(mark in words for mark in _LATE) else "left"
    return None


def storage_errno(error: BaseException) -> int | None:
    """The number that storage or network gave, with the error or what it was raised for; None of any other error.

    Many libraries raise timeouts and lost connections without a number: these are ETIMEDOUT, what else has none is 0.
    """
    if not isinstance(error, OSError):
        return None
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno
        if isinstance(cause, TimeoutError | ConnectionError):
            return errno.ETIMEDOUT
    return 0


def in_an_update(error: BaseException) -> bool:
    """True if the error, or one that it was raised for, came up through the training loop."""
    return any(
        frame.tb_frame.f_globals.get("__name__") == "trainworthy.lifecycle.engine.training.loop"
        for cause in _chain(error)
        for frame in _frames(cause.__traceback__)
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    visited: set[int] = set()
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
