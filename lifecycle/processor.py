"""The cores that this process may use, and how long its threads were ready to compute while other work had them."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from trainworthy.lifecycle.memory_limit import control_group_files

ROOT = Path("/")
TASKS = Path("/proc/self/task")


def usable_cores(root: Path = ROOT) -> int:
    """How many cores this process may use at once: what it is bound to, or less where its control group allows less.

    A container's share is of the second kind: 2.5 cores of a machine's 64 are 3 here. At least one.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *_shares(root)]))


def _shares(root: Path) -> list[int]:
    shares = []
    for path in control_group_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            fields = path.read_text().split()
            if path.name == "cpu.cfs_quota_us":
                fields += path.with_name("cpu.cfs_period_us").read_text().split()
            # "max" and -1 are none.
            if fields[0] not in ("max", "-1"):
                shares.append(math.ceil(int(fields[0]) / int(fields[1])))
    return shares


def waits_for_cores() -> dict[str, float] | None:
    """Seconds that each thread of this process has waited for a core; None where the system does not tell."""
    waits = {}
    try:
        for task in TASKS.iterdir():
            # One may end while it is asked.
            with contextlib.suppress(FileNotFoundError):
                waits[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
    return waits or None


def waited_for_core(pid: int) -> float:
    """Seconds that the main thread of a process has waited for a core; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
