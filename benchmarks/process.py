"""What a process takes: CPU and wall seconds of a whole one, and the peak of this one's memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# What an interpreter takes for itself now and then is some pages.
LEAST_PEAK_BYTES = 2**20


class Usage(NamedTuple):
    """CPU seconds of a process and of all children it waited for, and its wall seconds."""

    cpu_seconds: float
    wall_seconds: float


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, ends: int = 0) -> Usage:
    """Run the command in the folder to its end. Any other exit code than `ends` fails, with the last lines it wrote."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, env=dict(environment), cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        told = output.read().decode(errors="replace")[-3000:]
    assert process.returncode == ends, f"{' '.join(command)} ended with {process.returncode}:\n{told}"
    return Usage(usage.ru_utime + usage.ru_stime, wall)


def peak_beyond(work: Callable[[], object]) -> int:
    """Bytes of resident memory that `work` takes at its peak beyond what this process holds before it.

    Not `ru_maxrss`: on Linux it begins at the size of the process that started this one, so that an engine whose
    parent had been larger than itself took 0 bytes.

    Raises OSError where /proc has no peak that can be set anew, and ValueError below LEAST_PEAK_BYTES: `work` had room
    enough in what the process held before, so that nothing was measured.
    """
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_bytes("VmRSS")
    work()
    taken = _status_bytes("VmHWM") - before
    if taken < LEAST_PEAK_BYTES:
        raise ValueError(f"no peak was measured: {taken} bytes beyond the {before} before; give it more rows")
    return taken


def peak_bytes() -> int:
    """Peak of this process's resident memory since it began."""
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
