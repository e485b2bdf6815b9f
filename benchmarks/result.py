"""How every benchmark begins and ends: its arguments, the machine and the commit, and one JSON line.

A short run (`--short`) goes the whole way of a benchmark on tiny data in seconds. It shows that the benchmark runs;
its figures mean nothing, so its line says `"short": true` and `"met": null`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import math
import os
import platform
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
SHORT = "short run: tiny data, one repeat; these figures are no measurements"


def names() -> list[str]:
    """Every benchmark that `python -m benchmarks.NAME` runs: the modules here that define `main`."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if _defines_main(path))


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The parser of a benchmark, with `--short`; a benchmark adds what else it takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the whole way on tiny data, in seconds; no figures")
    return parser


def begin(short: bool) -> None:
    """Print the machine and the commit, and what a short run is."""
    print(hardware(), flush=True)
    print(f"commit: {commit()}", flush=True)
    if short:
        print(SHORT, flush=True)


def hardware() -> str:
    """Processor, cores, memory, Python and load, in one line."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"hardware: {cpu or platform.machine()}, {os.cpu_count()} cores, {kib / 2**20:.0f} GiB, "
        f"Python {platform.python_version()}, load {load}"
    )


@functools.cache
def commit() -> str:
    """The commit of this checkout, with `+changes` where files differ from it or are new; `unknown` outside git.

    Read once: what a benchmark itself writes (a picture of docs/images) is no change of what it measured. Nor is the
    record of checks, which one part may have written before the next begins.
    """
    head = _git("rev-parse", "--short", "HEAD")
    changes = _git("status", "--porcelain", "--", ":/", ":/!lifecycle/gates/record.json")
    return "unknown" if head is None else head + ("+changes" if changes else "")


def finish(
    name: str,
    figures: Mapping[str, float],
    targets: Mapping[str, float],
    *,
    short: bool = False,
    zero_allowed: Collection[str] = (),
) -> None:
    """Print the JSON line. `targets` are upper bounds; one that was not measured counts as missed.

    Args:
        zero_allowed: figures that count something or compare two, so that 0 is an answer. Any other is a measure.

    Raises ValueError if a figure is no finite number, or if a measure is 0: nothing was measured.
    """
    wrong = {
        key: value
        for key, value in figures.items()
        if not math.isfinite(value) or (value == 0 and key not in zero_allowed)
    }
    if wrong:
        raise ValueError(f"{name} did not measure these: {wrong}; correct the measurement")
    met = None if short else all(name in figures and figures[name] <= bound for name, bound in targets.items())
    # Six digits, not four decimals: a small measure would be written as 0.
    rounded = {key: float(f"{value:.6g}") for key, value in figures.items()}
    line = {"benchmark": name, "commit": commit(), "short": short, "figures": rounded, "targets": dict(targets)}
    print(json.dumps({**line, "met": met}), flush=True)


def _defines_main(path: Path) -> bool:
    """Read as text: a benchmark imports torch."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)


def _git(*arguments: str) -> str | None:
    """What git says of this checkout; None if it is none, or if there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(FOLDER), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
