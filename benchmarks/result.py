"""The first and the last line of every benchmark."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path


def hardware() -> str:
    """Processor, cores, memory, Python and load, in one line."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"hardware: {cpu or platform.machine()}, {os.cpu_count()} cores, {kib / 2**20:.0f} GiB, "
        f"Python {platform.python_version()}, load {load}"
    )


def finish(name: str, figures: Mapping[str, float], targets: Mapping[str, float]) -> None:
    """Print the JSON line. `targets` are upper bounds; one that was not measured counts as missed."""
    met = all(name in figures and figures[name] <= bound for name, bound in targets.items())
    rounded = {key: round(float(value), 4) for key, value in figures.items()}
    print(json.dumps({"benchmark": name, "figures": rounded, "targets": dict(targets), "met": met}))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
