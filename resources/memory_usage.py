"""What this machine tells of a process's memory: how much it had, and whether the kernel killed for it."""

from __future__ import annotations

from pathlib import Path

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.memory_limit import control_group_files, memory_limit_bytes, value_in

_ROOT = Path("/")


class MemoryWatch:
    """Counts the kernel's kills from its making on, and keeps the peak of the process that it is shown.

    Linux only; elsewhere all stays unknown.
    """

    def __init__(self, root: Path = _ROOT) -> None:
        self._root, self._peak_bytes = root, None
        self._before = kernel_kills(root)

    def look(self, *pids: int) -> None:
        """Remember the processes' peaks, together. A killed process tells nothing any more, so look while it lives."""
        peaks = [peak for pid in pids if (peak := self._peak_of(pid)) is not None]
        if peaks and len(peaks) == len(pids):
            self._peak_bytes = sum(peaks)

    def _peak_of(self, pid: int) -> int | None:
        """None between its end and its collection, and afterwards."""
        try:
            lines = (self._root / f"proc/{pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)

    def seen(self) -> MemorySeen:
        """What is known now."""
        after, counted_in = kernel_kills(self._root)
        before, _ = self._before
        kills = after - before if after is not None and before is not None else None
        limit = memory_limit_bytes(self._root)
        return MemorySeen(kernel_kills=kills, counted_in=counted_in, peak_bytes=self._peak_bytes, limit_bytes=limit)


def kernel_kills(root: Path = _ROOT) -> tuple[int | None, str]:
    """How many processes the kernel has killed for memory, and where that was counted; None if nobody tells.

    This process's control group counts its own only, whether its limit or the machine's was met. Without one the
    machine's count has to do, in which others' processes are as well.
    """
    for path in control_group_files(root, "memory", "memory.events", "memory.oom_control"):
        if (kills := value_in(path, "oom_kill")) is not None:
            return kills, "this control group"
    return value_in(root / "proc/vmstat", "oom_kill"), "this machine"
