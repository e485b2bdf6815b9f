"""How fast the commands answer that people type most: CPU seconds of `--help`, wall seconds of `check`.

make bench NAME=comfort          about half a minute on 2 cores
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.process import Usage, run
from benchmarks.result import arguments, begin, finish
from trainworthy.resources.settings import PRODUCT

# Each command, how often it is started, and a use case that is in the repository.
COMMANDS = {"help": (("--help",), 11), "check": (("check", "flight_delays"), 5)}
TARGETS = {"help_cpu_seconds": 0.5, "check_wall_seconds": 5.0}


def main() -> None:
    """Start every command once to warm the file cache, then its number of times; in a short run once."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    usages = {name: measure(words, 1 if short else repeats) for name, (words, repeats) in COMMANDS.items()}
    print(table(usages))
    finish("comfort", figures(usages), TARGETS, short=short)


def measure(words: Sequence[str], repeats: int) -> list[Usage]:
    """Fresh processes of `trainworthy`, without the first."""
    command = [sys.executable, "-m", "trainworthy.pipeline.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(PRODUCT / "src")}
    return [run(command, environment, PRODUCT) for _ in range(repeats + 1)][1:]


def figures(usages: Mapping[str, Sequence[Usage]]) -> dict[str, float]:
    """The medians that the targets name."""
    return {
        "help_cpu_seconds": statistics.median(usage.cpu_seconds for usage in usages["help"]),
        "check_wall_seconds": statistics.median(usage.wall_seconds for usage in usages["check"]),
    }


def table(usages: Mapping[str, Sequence[Usage]]) -> str:
    """One line a command: medians, and the range of wall seconds."""
    lines = [f"{'command':<32}{'CPU s':>8}{'wall s':>8}   wall s, least to most"]
    for name, of in usages.items():
        cpu, wall = statistics.median(usage.cpu_seconds for usage in of), sorted(usage.wall_seconds for usage in of)
        shown = f"trainworthy {' '.join(COMMANDS[name][0])}"
        lines.append(f"{shown:<32}{cpu:>8.2f}{statistics.median(wall):>8.2f}   {wall[0]:.2f} to {wall[-1]:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
