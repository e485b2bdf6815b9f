"""What this machine tells of a process's memory: how much it had, and whether the kernel killed for it."""

from __future__ import annotations

from pathlib import Path

from lifecycle.training.failure import MemorySeen

_ROOT = Path("/")


class MemoryWatch:
    """Counts the kernel's kills from its making on, and keeps the peak of the process that it is shown.

    Linux only; elsewhere all stays unknown.
    """

    def __init__(self, root: Path = _ROOT) -> None:
        self._root, self._peak_bytes = root, None
        self._before = kernel_kills(root)

    def look(self, pid: int) -> None:
        """Remember the process's peak. A killed process tells nothing any more, so look while it lives."""
        try:
            lines = (self._root / f"proc/{pid}/status").read_text().splitlines()
        except OSError:
            return
        peak = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
        # None between its end and its collection.
        self._peak_bytes = peak if peak is not None else self._peak_bytes

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
    for path in _control_group_files(root, "memory.events", "memory.oom_control"):
        if (found := _value(path, "oom_kill")) is not None:
            return found, "this control group"
    return _value(root / "proc/vmstat", "oom_kill"), "this machine"


def memory_limit_bytes(root: Path = _ROOT) -> int | None:
    """The smaller of the control group's limit and the machine's memory; None if neither is known."""
    total = _value(root / "proc/meminfo", "MemTotal:")
    found = [total * 1024] if total is not None else []
    for path in _control_group_files(root, "memory.max", "memory.limit_in_bytes"):
        text = _text(path)
        # "max" is none; so is version 1's largest number.
        found += [int(text)] if text.strip().isdigit() else []
    return min(found, default=None)


def _control_group_files(root: Path, in_version_2: str, in_version_1: str) -> list[Path]:
    """Where this process's control group keeps that file; within a container its folder is the mount itself."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", in_version_2
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", in_version_1
        else:
            continue
        found += [mount / inside / name, mount / name]
    return found


def _value(path: Path, name: str) -> int | None:
    """The number behind a name at the start of a line."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
