"""Work in a fork of this process, of which nothing stays but its answer.

A network that is followed on fake tensors may keep some: in a dict of its module, a functools.cache, a class. Whatever
it then computed in this process would fail. A fork takes them with it when it ends; so it does with a hanging loop, or
a crash. The answer comes back as JSON, since a pickle would run code.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

# A trace ends itself by its operations; this is for what it cannot end. CPU seconds, since a busy machine has taken
# more than a minute for a healthy one of 2 s.
CPU_SECONDS = 60
# And this for what waits without end: a healthy one would need a hundred others on its core.
WALL_SECONDS = 300.0
AGAIN = "run preflight again, on a machine with less to do if this one was busy"


class SandboxError(RuntimeError):
    """The process ended without an answer."""


def in_sandbox(work: Callable[[], str], cpu_seconds: int = CPU_SECONDS, wall_seconds: float = WALL_SECONDS) -> str:
    """What `work` returned in a fork, which must touch no accelerator. Raises SandboxError if none came in time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(work, writing, cpu_seconds)
    os.close(writing)
    try:
        answer = _read(reading, time.monotonic() + wall_seconds)
    finally:
        os.close(reading)
        # One that has ended by itself keeps its own status.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if answer is None:
        raise SandboxError(f"following the step took more than {wall_seconds:.0f} s: {AGAIN}")
    if not answer.endswith(b"\n"):
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            raise SandboxError(f"following the step took more than {cpu_seconds} CPU seconds: {AGAIN}")
        raise SandboxError(f"the process that followed the step ended without an answer (exit code {code})")
    return answer.decode()


def _read(pipe: int, deadline: float) -> bytes | None:
    """All that is written until the other end closes; None at the deadline."""
    content = bytearray()
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(pipe, 1 << 20)
        if not part:
            return bytes(content)
        content += part
    return None


def _answer(work: Callable[[], str], pipe: int, cpu_seconds: int) -> NoReturn:
    """In the fork: the answer and a line's end, by which a whole one is known."""
    code = 1
    try:
        import torch

        # A fork's CPU time begins at nought. One that was limited to less already keeps that.
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if soft == resource.RLIM_INFINITY or soft > cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, hard))
        # The parent's thread pool is not there in a fork; with one thread nothing waits for it.
        torch.set_num_threads(1)
        with contextlib.closing(os.fdopen(pipe, "wb")) as file:
            file.write(work().encode() + b"\n")
        code = 0
    finally:
        os._exit(code)
