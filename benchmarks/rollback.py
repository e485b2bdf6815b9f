"""The way back: how long the champion's alias takes to move, and a whole rollback from a cold start.

On the toy project, with two models promoted one after the other. Alias: median of ALIAS_REPEATS switches in one
process. Cold: the bare command `dagster job execute -j rollback_toy` in a fresh process, each on a state copied anew,
to its end, with the golden requests answered in a worker. Targets: 100 ms and 10 s.

    make bench NAME=rollback         about 3 minutes on 2 cores; the tree must be committed
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.process import Usage, run
from benchmarks.result import finish, hardware
from lifecycle.promotion import log
from resources.mlflow import Tracking
from resources.settings import PROJECT

ALIAS_REPEATS, COLD_REPEATS = 40, 5
TARGETS = {"alias_seconds": 0.1, "cold_seconds": 10.0}
FIRST = '{"resources": {"intent": {"config": {"first_model": true}}}}'
# A model of another seed that is no worse within a wide margin takes the first one's place.
SECOND = (("seed: 7", "seed: 8"), ("margin: 0.01", "margin: 0.1"), ("purpose: improve", "purpose: refresh"))
PARTS = ("seconds", "load_seconds", "alias_seconds")


def main() -> None:
    """Promote two models, then measure on copies of that state."""
    print(hardware(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= promoted_twice(folder)
        print(f"two models are promoted; {hardware()}", flush=True)
        switches = alias_switches(folder)
        rollbacks = [cold_rollback(folder, number) for number in range(COLD_REPEATS)]
    print(hardware())
    print(table(switches, rollbacks))
    finish("rollback", figures(switches, rollbacks), TARGETS)


def promoted_twice(folder: Path) -> dict[str, str]:
    """Version 2 of the toy replaced version 1 in <folder>/state; gives the environment that names both."""
    root = folder / "project"
    shutil.copytree(PROJECT / "tests" / "toy", root, ignore=shutil.ignore_patterns("__pycache__", "toy_rows"))
    _git(root, "init", "--quiet")
    _commit(root)
    environment = {"TRAINWORTHY_VAR": str(folder / "state"), "TRAINWORTHY_USE_CASES": str(root / "use_cases")}
    (folder / "first.yaml").write_text(FIRST)
    _dagster("train_toy", "-c", str(folder / "first.yaml"), **environment)
    values = root / "use_cases" / "toy" / "use_case.yaml"
    for old, new in SECOND:
        values.write_text(values.read_text().replace(old, new))
    _commit(root)
    _dagster("train_toy", **environment)
    promoted = [entry.action for entry in log.read(folder / "state" / "verdicts" / "toy.jsonl")]
    assert promoted == ["promote", "promote"], f"{promoted}: is the tree committed?"
    return environment


def alias_switches(folder: Path) -> list[float]:
    """Seconds of each move of both aliases to version 1, after a warm-up; each is taken back untimed."""
    _copied(folder, "aliases")
    tracking, seconds = Tracking(), []
    for _ in range(ALIAS_REPEATS + 2):
        started = time.perf_counter()
        tracking.roll_back("toy", "1", None)
        seconds.append(time.perf_counter() - started)
        tracking.promote("toy", "2", "1")
    return seconds[2:]


def cold_rollback(folder: Path, number: int) -> tuple[Usage, dict[str, float]]:
    """The whole command, and its parts as its asset observation has them."""
    state = _copied(folder, f"cold-{number}")
    usage = _dagster("rollback_toy")
    champion = log.champion(log.read(state / "verdicts" / "toy.jsonl"))
    assert champion is not None
    assert (champion.action, champion.model_version) == ("rollback", "1")
    with dg.DagsterInstance.from_config(str(PROJECT)) as instance:
        (event,) = instance.fetch_observations(dg.AssetKey(["toy", "promotion"]), limit=1).records
    observed: Any = event.asset_observation
    return usage, {part: float(observed.metadata[f"rollback/{part}"].value) for part in PARTS}


def figures(switches: list[float], rollbacks: list[tuple[Usage, dict[str, float]]]) -> dict[str, float]:
    """Medians by name."""
    median = statistics.median
    return {
        "alias_seconds": median(switches),
        "cold_seconds": median(usage.wall_seconds for usage, _ in rollbacks),
        "cold_cpu_seconds": median(usage.cpu_seconds for usage, _ in rollbacks),
        **{f"cold_of_which_{part}": median(parts[part] for _, parts in rollbacks) for part in PARTS},
    }


def table(switches: list[float], rollbacks: list[tuple[Usage, dict[str, float]]]) -> str:
    """The range of alias switches, and a line for each cold rollback."""
    least, median, most = (1000 * f(switches) for f in (min, statistics.median, max))
    lines = [f"alias switch: median {median:.0f} ms of {len(switches)}, from {least:.0f} to {most:.0f} ms"]
    lines += [f"{'cold rollback':<15}{'wall s':>8}{'CPU s':>8}{'step s':>8}{'load s':>8}{'alias s':>9}"]
    for number, (usage, parts) in enumerate(rollbacks, start=1):
        step, load, alias = (parts[part] for part in PARTS)
        whole = f"{usage.wall_seconds:>8.2f}{usage.cpu_seconds:>8.2f}"
        lines.append(f"{number:<15}{whole}{step:>8.2f}{load:>8.2f}{alias:>9.3f}")
    return "\n".join(lines)


def _dagster(job: str, *arguments: str, **environment: str) -> Usage:
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", "pipeline.definitions", "-j", job, *arguments]
    return run(command, {**os.environ, "PYTHONPATH": str(PROJECT), **environment}, PROJECT)


def _copied(folder: Path, name: str) -> Path:
    """A copy of the state, which the environment names from now on."""
    shutil.copytree(folder / "state", folder / name)
    os.environ["TRAINWORTHY_VAR"] = str(folder / name)
    return folder / name


def _commit(root: Path) -> None:
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=Benchmark", "-c", "user.email=bench@example.org", "commit", "--quiet", "-m", "toy")


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


if __name__ == "__main__":
    main()
