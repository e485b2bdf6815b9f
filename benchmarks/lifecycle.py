"""What the orchestration itself costs, in CPU seconds of whole processes with their children.

Eight steps whose own work is a constant (frame_assets.py), against eight empty assets (empty_assets.py), both by
`dagster job execute` with the project's dagster.yaml and a persistent SQLite instance; each further check; the start of
a worker; loading the definitions. Processes are fresh and interleaved, figures are medians.

    make bench NAME=lifecycle        about 4 minutes on 2 cores
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.process import Usage, run
from benchmarks.result import arguments, begin, finish, hardware
from benchmarks.worker_jobs import EXIT_WITHOUT_ROWS, one_step_job, without_rows_job
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.resources.settings import PRODUCT

MORE_CHECKS, MORE_USE_CASES = 10, 10
CHECKS = 3
TOY = PRODUCT / "tests" / "toy" / "use_cases"
TARGETS = {
    "frame_over_empty": 1.3,
    "further_check_cpu_seconds": 0.025,
    "worker_start_cpu_seconds": 0.5,
    "definitions_cpu_seconds": 0.3,
    "further_use_case_cpu_seconds": 0.05,
}
Variant = Callable[[], Usage]


class Size(NamedTuple):
    """How often every variant is run to warm up and to be measured, and how many empty assets there are."""

    warm: int
    repeats: int
    empty_assets: int


WHOLE, SHORT = Size(1, 5, len(STEPS)), Size(0, 1, 1)


def main() -> None:
    """Run every variant to warm up, then some times in turn."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    size = SHORT if short else WHOLE
    with tempfile.TemporaryDirectory() as folder:
        usages = measure(variants(Path(folder), size.empty_assets), size)
    print(table(usages))
    print(hardware())
    finish("lifecycle", figures(usages), TARGETS, short=short)


def measure(variants: Mapping[str, Variant], size: Size) -> dict[str, list[Usage]]:
    """Interleaved, so that a change of the machine's load falls on all alike."""
    rounds = [{name: variant() for name, variant in variants.items()} for _ in range(size.warm + size.repeats)]
    rounds = rounds[size.warm :]
    return {name: [one[name] for one in rounds] for name in variants}


def figures(usages: Mapping[str, Sequence[Usage]]) -> dict[str, float]:
    """The named differences and ratios of median CPU seconds."""
    cpu = {name: statistics.median(usage.cpu_seconds for usage in of) for name, of in usages.items()}
    return {
        "frame_over_empty": cpu["frame"] / cpu["empty"],
        # Dagster's own SQLite storage under the empty assets, as a project without ours would have it.
        "frame_over_empty_dagster_storage": cpu["frame"] / cpu["empty, Dagster's storage"],
        # The same without what every process of Dagster pays for its import.
        "frame_over_empty_beyond_import": (cpu["frame"] - cpu["import dagster"])
        / (cpu["empty"] - cpu["import dagster"]),
        "multiprocess_over_empty": cpu["empty, multiprocess"] / cpu["empty"],
        "further_check_cpu_seconds": (cpu["frame, more checks"] - cpu["frame"]) / (len(STEPS) * MORE_CHECKS),
        "worker_start_cpu_seconds": cpu["worker, to its rows"] - cpu["import torch"],
        "worker_one_step_cpu_seconds": cpu["worker, one update"] - cpu["import torch"],
        "definitions_cpu_seconds": cpu["definitions"] - cpu["import dagster"],
        "further_use_case_cpu_seconds": (cpu["definitions, more use cases"] - cpu["definitions"]) / MORE_USE_CASES,
    }


def table(usages: Mapping[str, Sequence[Usage]]) -> str:
    """One line a variant: median CPU and wall seconds, and the range of CPU seconds."""
    lines = [f"{'process':<30}{'CPU s':>8}{'wall s':>8}   CPU s, least to most"]
    for name, of in usages.items():
        cpu, wall = sorted(usage.cpu_seconds for usage in of), [usage.wall_seconds for usage in of]
        median = f"{statistics.median(cpu):>8.2f}{statistics.median(wall):>8.2f}"
        lines.append(f"{name:<30}{median}   {cpu[0]:.2f} to {cpu[-1]:.2f}")
    return "\n".join(lines)


def variants(folder: Path, empty_assets: int = len(STEPS)) -> dict[str, Variant]:
    """Every process to measure; all state lies below the folder."""
    ours, theirs = _dagster_home(folder / "ours", True), _dagster_home(folder / "dagster", False)
    count = {"BENCHMARK_EMPTY_ASSETS": str(empty_assets)}
    more = _many_use_cases(folder / "project" / "use_cases")
    state, checks = ours["TRAINWORTHY_VAR"], str(CHECKS + MORE_CHECKS)
    torch_job = one_step_job(folder / "one_step", TOY / "toy")
    return {
        "import dagster": lambda: _python("-c", "import dagster"),
        "definitions": lambda: _python("-c", "import trainworthy.pipeline.definitions", **ours),
        "definitions, more use cases": lambda: _python(
            "-c", "import trainworthy.pipeline.definitions", **ours | {"TRAINWORTHY_USE_CASES": more}
        ),
        "empty": lambda: _job("empty_assets", "empty", **ours | count),
        "empty, Dagster's storage": lambda: _job("empty_assets", "empty", **theirs | count),
        "empty, multiprocess": lambda: _job("empty_assets", "empty_multiprocess", **ours | count),
        "frame": lambda: _fresh_frame(state, CHECKS, **ours),
        "frame, reused": lambda: _job("frame_assets", "frame", **ours),
        "frame, more checks": lambda: _fresh_frame(state, CHECKS + MORE_CHECKS, **ours | {"BENCHMARK_CHECKS": checks}),
        "import torch": lambda: _python("-c", "import torch"),
        "worker, to its rows": lambda: _python(
            "-m",
            "trainworthy.lifecycle.worker",
            "--job",
            without_rows_job(folder / "start", TOY / "toy"),
            ends=EXIT_WITHOUT_ROWS,
        ),
        "worker, one update": lambda: _python("-m", "trainworthy.lifecycle.worker", "--job", torch_job()),
    }


def _python(*arguments: str, ends: int = 0, **environment: str) -> Usage:
    return run(
        [sys.executable, *arguments], {**os.environ, "PYTHONPATH": str(PRODUCT / "src"), **environment}, PRODUCT, ends
    )


def _job(module: str, job: str, **environment: str) -> Usage:
    return _python("-m", "dagster", "job", "execute", "-m", f"benchmarks.{module}", "-j", job, **environment)


def _fresh_frame(state: str, checks: int, **environment: str) -> Usage:
    """All steps do their work; that they wrote their records, each with its checks, is verified."""
    objects = Path(state) / "records" / "toy" / "objects"
    shutil.rmtree(Path(state) / "records", ignore_errors=True)
    usage = _job("frame_assets", "frame", **environment)
    written = [yaml.safe_load(path.read_text()) for path in objects.iterdir()]
    assert [len(record["checks"]) for record in written] == [checks] * len(STEPS), "a step left no record"
    return usage


def _dagster_home(folder: Path, our_storage: bool) -> dict[str, str]:
    """The environment of an instance with the project's settings, without or with its storage."""
    settings = yaml.safe_load((PRODUCT / "dagster.yaml").read_text())
    if not our_storage:
        del settings["storage"]
    folder.mkdir()
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    names = {"DAGSTER_HOME": folder, "TRAINWORTHY_VAR": folder / "var", "TRAINWORTHY_USE_CASES": TOY}
    return {name: str(path) for name, path in names.items()}


def _many_use_cases(folder: Path) -> str:
    """The toy use case and MORE_USE_CASES copies under other names."""
    for name in ("toy", *(f"toy_{number}" for number in range(MORE_USE_CASES))):
        shutil.copytree(TOY / "toy", folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / name / "use_case.yaml"
        path.write_text(path.read_text().replace("name: toy\n", f"name: {name}\n", 1))
    return str(folder)


if __name__ == "__main__":
    main()
