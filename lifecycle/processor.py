"""What Linux tells of the time that this process' threads were ready to compute and other work had the cores."""

from __future__ import annotations

import contextlib
from pathlib import Path

TASKS = Path("/proc/self/task")


def waits_for_cores() -> dict[str, float] | None:
    """Seconds that each thread of this process has waited for a core; None where the system does not tell."""
    found = {}
    try:
        for task in TASKS.iterdir():
            # One may end while it is asked.
            with contextlib.suppress(FileNotFoundError):
                found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
    return found or None


def waited_for_core(pid: int) -> float:
    """Seconds that the main thread of a process has waited for a core; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
