"""CPU and wall seconds of a whole process."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


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
