"""The way back: how long the champion's alias takes to move, and a whole rollback from a cold start.

On the toy project, with two models promoted one after the other. Alias: median of 40 switches in one
process. Cold: the bare command `dagster job execute -j rollback_toy` in a fresh process, each on a state copied anew,
to its end, with the golden requests answered in a worker. Targets: 100 ms and 10 s.

A short run trains one model, and the registry takes its files as version 2, too.

    make bench NAME=rollback         about 3 minutes on 2 cores; the tree must be committed
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from benchmarks.process import Usage
from benchmarks.result import arguments, begin, finish, hardware
from benchmarks.toy_project import commit, new_toy, run_job
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import PRODUCT

TARGETS = {"alias_seconds": 0.1, "cold_seconds": 10.0}
# A model of another seed that is no worse within a wide margin takes the first one's place.
SECOND = (("seed: 7", "seed: 8"), ("margin: 0.01", "margin: 0.1"), ("purpose: improve", "purpose: refresh"))
PARTS = ("seconds", "load_seconds", "alias_seconds")


class Size(NamedTuple):
    """How often the aliases are moved, and how many whole rollbacks there are."""

    switches: int
    rollbacks: int


WHOLE, SHORT = Size(40, 5), Size(2, 1)


def main() -> None:
    """Promote two models, then measure on copies of that state."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    size = SHORT if short else WHOLE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= promoted_again(folder) if short else promoted_twice(folder)
        print(f"two models are promoted; {hardware()}", flush=True)
        switches = alias_switches(folder, size.switches)
        rollbacks = [cold_rollback(folder, number) for number in range(size.rollbacks)]
    print(hardware())
    print(table(switches, rollbacks))
    finish("rollback", figures(switches, rollbacks), TARGETS, short=short)


def promoted_twice(folder: Path) -> dict[str, str]:
    """Version 2 of the toy replaced version 1 in <folder>/state; gives the environment that names both."""
    environment = _promoted_once(folder)
    values = folder / "project" / "use_cases" / "toy" / "use_case.yaml"
    for old, new in SECOND:
        values.write_text(values.read_text().replace(old, new))
    commit(folder / "project")
    run_job("train_toy", **environment)
    _refuse_other_than_two(folder)
    return environment


def promoted_again(folder: Path) -> dict[str, str]:
    """The same without a second training: version 2 has the files of version 1.

    On a busy machine a check of the first may be insufficient and its verdict shadow; it is promoted here all the same.
    """
    environment = _promoted_once(folder)
    os.environ |= environment
    tracking, verdicts = Tracking(), VerdictLog(FolderState(folder / "state"), "toy")
    (first,), (entry,) = tracking.versions("toy"), log.read(verdicts)
    again = tracking.register(tracking.run("toy", "again", {}), "toy", first.artifact, "b" * 64, tags={})

    def promote(version: str, verdict: str) -> None:
        with verdicts.lease(lambda: None) as held:
            log.append(
                verdicts, held, action="promote", model_version=version, verdict_sha256=verdict,
                previous_verdict_sha256=entry.verdict_sha256,
            )  # fmt: skip

    if entry.action != "promote":
        promote(first.version, entry.verdict_sha256)
    promote(again.version, "b" * 64)
    tracking.set_champion("toy", again.version, first.version)
    _refuse_other_than_two(folder)
    return environment


def _promoted_once(folder: Path) -> dict[str, str]:
    environment = new_toy(folder)
    run_job("train_toy", "-c", str(folder / "first.yaml"), **environment)
    return environment


def _refuse_other_than_two(folder: Path) -> None:
    entries = log.read(VerdictLog(FolderState(folder / "state"), "toy"))
    promoted = [entry.model_version for entry in entries if entry.action == "promote"]
    told = ", ".join(f"{entry.action} of version {entry.model_version}" for entry in entries)
    assert promoted == ["1", "2"], f"{told}: is the tree committed, and the machine idle?"


def alias_switches(folder: Path, repeats: int) -> list[float]:
    """Seconds of each move of both aliases to version 1, after a warm-up; each is taken back untimed."""
    _copied(folder, "aliases")
    tracking, seconds = Tracking(), []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        tracking.set_champion("toy", "1", None)
        seconds.append(time.perf_counter() - started)
        tracking.set_champion("toy", "2", "1")
    return seconds[2:]


def cold_rollback(folder: Path, number: int) -> tuple[Usage, dict[str, float]]:
    """The whole command, and its parts as its asset observation has them."""
    state = _copied(folder, f"cold-{number}")
    usage = run_job("rollback_toy")
    champion = log.champion(log.read(VerdictLog(FolderState(state), "toy")))
    assert champion is not None
    assert (champion.action, champion.model_version) == ("rollback", "1")
    with dg.DagsterInstance.from_config(str(PRODUCT)) as instance:
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


def _copied(folder: Path, name: str) -> Path:
    """A copy of the state, which the environment names from now on."""
    shutil.copytree(folder / "state", folder / name)
    os.environ["TRAINWORTHY_VAR"] = str(folder / name)
    return folder / name


if __name__ == "__main__":
    main()
