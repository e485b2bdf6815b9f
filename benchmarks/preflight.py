"""The battery of preflight on healthy odd trainings, on planted faults, and on flight_delays.

False alarms: each healthy set-up of healthy.py with five seeds, those of ODD with one. Detection: each planted fault
(planted.py, planted_held_back.py); it counts as found if a check of those that it names fails, and as told rightly if
the first failing check is one of them. Then preflight_flight_delays, and what the forecasts of memory and seconds are
off by.

    make bench NAME=preflight                                     about 30 minutes on 2 cores
    python -m benchmarks.preflight healthy --seeds 1 mlp gru      one part, or some set-ups of it
    python -m benchmarks.preflight planted --record               its counts of each check go into record.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch

from benchmarks.healthy import HEALTHY, ODD
from benchmarks.healthy_fresh import FRESH_HEALTHY
from benchmarks.planted import PLANTED, Planted
from benchmarks.planted_fresh import FRESH
from benchmarks.planted_held_back import HELD_BACK
from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy, whole_parts
from benchmarks.result import arguments, begin, finish
from benchmarks.setup import on_device
from benchmarks.toy_project import new_toy, run_job
from trainworthy.lifecycle.engine.preflight.run import run_battery
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.resources.settings import PRODUCT

PARTS = ("healthy", "planted", "held_back", "fresh_healthy", "fresh", "flights", "forecasts")
FORECASTS = ("preflight_memory", "preflight_seconds")
TARGETS = {
    "false_alarms": 0, "warnings": 0, "not_told": 0, "updates": 100, "planted_missed": 0.05, "held_back_missed": 0.15,
    "held_back_misnamed": 0.3, "flights_seconds": 60, "flights_updates": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """A battery on one subject."""

    name: str
    seed: int
    trials: tuple[Trial, ...]
    seconds: float

    def of(self, *kinds: str) -> list[Trial]:
        return [trial for trial in self.trials if kind(trial) in kinds]

    @property
    def updates(self) -> int:
        return updates(self.trials)


def kind(trial: Trial) -> str:
    """alarm: it would stop a run. warning. not_told: it could not say. Else its status."""
    if trial.status in ("fail", "error"):
        return "alarm" if trial.severity == "error" else "warning"
    return "not_told" if trial.status == "insufficient" else trial.status


def updates(trials: Iterable[Trial]) -> int:
    """Updates of optimizers outside the overfit family."""
    return sum(trial.optimizer_steps for trial in trials if trial.family != "overfit")


def battery(name: str, seed: int, make: Callable[[int], Subject]) -> Tried:
    subject, started = on_device(make(seed)), time.perf_counter()
    # As a stage does: with kernels that add in one order.
    seed_everything(subject.recipe.seed)
    trials = run_battery(subject)
    return Tried(name, seed, trials, time.perf_counter() - started)


def false_alarms(
    part: str, healthy: Mapping[str, Callable[[int], Subject]], seeds: Mapping[str, int], record: bool = False
) -> dict[str, float]:
    """A line for each run and for each check that is no pass; the sums. `seeds`: how many of each set-up.

    `record` keeps the counts of each check.
    """
    done = []
    for name, count in seeds.items():
        done += [_shown(battery(name, seed, healthy[name])) for seed in range(count)]
    sums = {word: float(sum(len(one.of(word)) for one in done)) for word in ("alarm", "warning", "not_told")}
    print(f"{len(done)} healthy runs: {sums}; slowest {max(one.seconds for one in done):.1f} s")
    for check in dict.fromkeys(trial.check for one in done for trial in one.trials):
        of = [trial.seconds for one in done for trial in one.trials if trial.check == check]
        print(f"{check:<44}{sum(of) / len(of):>8.2f} s on average")
    if record:
        keep("preflight", part, len(done), of_healthy([_as_healthy(one) for one in done]))
    return {
        "false_alarms": sums["alarm"], "warnings": sums["warning"], "not_told": sums["not_told"],
        "updates": max(one.updates for one in done), "healthy_runs": len(done),
        "healthy_seconds": sum(one.seconds for one in done) / len(done),
    }  # fmt: skip


def _as_healthy(one: Tried) -> HealthyRun:
    return HealthyRun(
        looked=_ids(one.of("pass", "alarm", "warning")), alarms=_ids(one.of("alarm")), warnings=_ids(one.of("warning"))
    )  # fmt: skip


def _ids(trials: Iterable[Trial]) -> set[str]:
    return {trial.check for trial in trials}


def detection(
    part: str, faults: Mapping[str, Planted], seeds: Mapping[str, int], record: bool = False
) -> dict[str, float]:
    """A line for each fault: found, by which checks, and whether the first one names it.

    `record` keeps the counts of each check; a pattern names all checks that it matches and that apply.
    """
    missed, misnamed, tried = 0, 0, 0
    runs: list[FaultRun] = []
    for name, count in seeds.items():
        make, ids = faults[name]
        for seed in range(count):
            one = battery(name, seed, make)
            told = one.of("alarm", "warning")
            runs.append(FaultRun({trial.check for trial in one.trials if _names(trial, ids)}, _ids(told)))
            found, first = any(_matches(trial, ids) for trial in told), bool(told) and _matches(told[0], ids)
            tried, missed, misnamed = tried + 1, missed + (not found), misnamed + (not first)
            word = "found  " if first else "late   " if found else "MISSED "
            print(f"{word} {name} {seed}: {', '.join(trial.check for trial in told) or 'nothing'}", flush=True)
            if not found:
                _explain(told)
    print(f"{part}: {tried - missed} of {tried} found, {tried - misnamed} with the right check first")
    if record:
        keep("preflight", part, tried, of_faults(runs))
    return {f"{part}_missed": missed / max(1, tried), f"{part}_misnamed": misnamed / max(1, tried)}


def _matches(trial: Trial, ids: Sequence[str]) -> bool:
    return any(fnmatch(trial.check, pattern) for pattern in ids)


def _names(trial: Trial, ids: Sequence[str]) -> bool:
    return trial.check in ids or (trial.status != "not_applicable" and _matches(trial, ids))


def _shown(one: Tried) -> Tried:
    told = one.of("alarm", "warning", "not_told")
    word = "ALARM" if one.of("alarm") else "warns" if one.of("warning") else "quiet"
    print(f"{word} {one.name} {one.seed}: {one.seconds:.1f} s, {one.updates} updates", flush=True)
    _explain(told)
    return one


def _explain(trials: Iterable[Trial]) -> None:
    for trial in trials:
        print(f"        {kind(trial)} {trial.check} ({trial.status}): {trial.evidence}", flush=True)


def flights(short: bool) -> dict[str, float]:
    """The checks of preflight on flight_delays, in a fresh state folder: their seconds and updates.

    In a short run those on the toy project of the tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        if short:
            run_job("preflight_toy", "-c", f"{folder}/first.yaml", **new_toy(Path(folder)))
        else:
            first = "use_cases/flight_delays/first_model.yaml"
            run_job("preflight_flight_delays", "-c", first, TRAINWORTHY_VAR=f"{folder}/state")
        (answer,) = (Path(folder) / "state" / "preflight").glob("*/*/result.json")
        trials = [Trial.model_validate(found) for found in json.loads(answer.read_text())["result"]["trials"]]
    families = dict.fromkeys(trial.family for trial in trials)
    for family in families:
        of = [trial for trial in trials if trial.family == family]
        print(f"{family:<16}{len(of):>3} checks {sum(t.seconds for t in of):>7.2f} s")
    _explain(trial for trial in trials if kind(trial) in ("alarm", "warning", "not_told"))
    return {"flights_seconds": sum(trial.seconds for trial in trials), "flights_updates": updates(trials)}


def forecasts(short: bool) -> dict[str, float]:
    """The benchmarks of the two forecasts, each in a process of its own with a JSON line of its own.

    In a short run one of them: both have short runs of their own.
    """
    for name in FORECASTS[-1:] if short else FORECASTS:
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--short"] if short else [])]
        subprocess.run(command, cwd=PRODUCT, check=True)
    return {}


def main() -> None:
    """Run all parts, or the one that is named."""
    parser = arguments(__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="all of them without it")
    parser.add_argument("names", nargs="*", help="set-ups of that part; all of them without it")
    parser.add_argument("--seeds", type=int, default=0, help="seeds of each; else five of healthy, one of planted")
    parser.add_argument("--record", action="store_true", help="keep the counts of each check, of whole parts")
    asked = parser.parse_args()
    short = asked.short
    record = whole_parts(parser, asked, asked.names)
    begin(short)
    # The networks are so small that a second thread costs more than it gives.
    torch.set_num_threads(1)
    figures: dict[str, float] = {}

    def seeds(names: Iterable[str], usual: int = 1) -> dict[str, int]:
        """Seeds of each that is asked for; of ODD one, unless it is asked for by name. In a short run the first."""
        if asked.names:
            return {name: asked.seeds or usual for name in names if name in asked.names}
        every = {name: 1 if name in ODD else asked.seeds or usual for name in names}
        return dict.fromkeys(list(every)[:1], 1) if short else every

    parts: dict[str, Callable[[], dict[str, float]]] = {
        "healthy": lambda: false_alarms("healthy", HEALTHY, seeds(HEALTHY, 5), record),
        "planted": lambda: detection("planted", PLANTED, seeds(PLANTED), record),
        "held_back": lambda: detection("held_back", HELD_BACK, seeds(HELD_BACK), record),
        "fresh_healthy": lambda: false_alarms("fresh_healthy", FRESH_HEALTHY, seeds(FRESH_HEALTHY), record),
        "fresh": lambda: detection("fresh", FRESH, seeds(FRESH), record),
        "flights": lambda: flights(short),
        "forecasts": lambda: forecasts(short),
    }
    for name in [asked.part] if asked.part else PARTS:
        figures |= parts[name]()
    targets = TARGETS if not asked.part else {name: bound for name, bound in TARGETS.items() if name in figures}
    zero_allowed = {name for name in figures if "seconds" not in name and "updates" not in name}
    finish("preflight", figures, targets, short=short, zero_allowed=zero_allowed)


if __name__ == "__main__":
    main()
