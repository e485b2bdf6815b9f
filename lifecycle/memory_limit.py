"""How much memory a process may use here: what its control group allows, what the machine has, or what the GPU has."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")


def device_limit_bytes(device: str) -> int | None:
    """Of what a training's tensors lie in: all of that GPU's memory, else this process's."""
    if not device.startswith("cuda"):
        return memory_limit_bytes()
    import torch

    return torch.cuda.get_device_properties(device).total_memory


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The smaller of the control group's limit and the machine's memory; None if neither is known."""
    total = value_in(root / "proc/meminfo", "MemTotal:")
    limits = [total * 1024] if total is not None else []
    for path in control_group_files(root, "memory", "memory.max", "memory.limit_in_bytes"):
        text = _text(path)
        # "max" is none; so is version 1's largest number.
        limits += [int(text)] if text.strip().isdigit() else []
    return min(limits, default=None)


def control_group_files(root: Path, controller: str, in_version_2: str, in_version_1: str) -> list[Path]:
    """Where this process's control group keeps that file; within a container its folder is the mount itself."""
    files = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", in_version_2
        elif controller in controllers.split(","):
            mount, name = root / "sys/fs/cgroup" / controller, in_version_1
        else:
            continue
        files += [mount / inside / name, mount / name]
    return files


def value_in(path: Path, name: str) -> int | None:
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
