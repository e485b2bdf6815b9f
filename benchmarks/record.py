"""Counts of each check from the runs of a benchmark, and their place in lifecycle/gates/record.json."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from benchmarks.result import commit, hardware
from trainworthy.lifecycle.gates.check_record import FILE, Counts, Part, parts, written


@dataclass(frozen=True)
class FaultRun:
    """A planted fault: the checks or causes that may tell of it, and those that did; the first if `share` is known."""

    named: Collection[str]
    told: Collection[str]
    share: float | None = None


@dataclass(frozen=True)
class HealthyRun:
    """A healthy run: what gave an answer, and what told of something that is not there."""

    looked: Collection[str]
    alarms: Collection[str] = field(default_factory=tuple)
    warnings: Collection[str] = field(default_factory=tuple)


def of_faults(runs: Sequence[FaultRun]) -> dict[str, Counts]:
    """Of each name that some fault names."""
    return {name: _of_fault(name, runs) for name in _all(run.named for run in runs)}


def of_healthy(runs: Sequence[HealthyRun]) -> dict[str, Counts]:
    """Of each name that gave an answer in some run, or told of something."""
    names = _all([*run.looked, *run.alarms, *run.warnings] for run in runs)
    return {
        name: Counts(
            looked=_times(runs, lambda run: run.looked, name),
            alarms=_times(runs, lambda run: run.alarms, name),
            warnings=_times(runs, lambda run: run.warnings, name),
        )
        for name in names
    }


def keep(
    benchmark: str, part: str, runs: int, checks: dict[str, Counts], causes: dict[str, Counts] | None = None
) -> None:
    """Put the counts of a part in the place of those that it had."""
    kept = Part(
        command=" ".join(["python -m", f"benchmarks.{benchmark}", *sys.argv[1:]]), commit=commit(),
        date=datetime.now(UTC).isoformat(timespec="minutes"), hardware=hardware().removeprefix("hardware: "),
        runs=runs, checks=checks, causes=causes or {},
    )  # fmt: skip
    written({**parts(FILE), f"{benchmark} {part}": kept}, FILE)
    print(f"kept in record.json: {benchmark} {part}, {runs} runs", flush=True)


def whole_parts(parser: argparse.ArgumentParser, asked: argparse.Namespace, chosen: Collection[object] = ()) -> bool:
    """Whether counts are to be kept. Ends the program where they would be those of less than a whole part.

    `chosen` are the cases that the command line names; all of them where it names none.
    """
    if asked.record and (asked.short or chosen):
        parser.error("--record keeps the counts of whole parts. Fix: leave out --short and names")
    return asked.record


def _of_fault(name: str, runs: Sequence[FaultRun]) -> Counts:
    naming = [run for run in runs if name in run.named]
    found = [run for run in naming if name in run.told]
    by_others = [run for run in naming if name not in run.told and set(run.named) & set(run.told)]
    shares = [run.share for run in found if run.share is not None]
    share = round(statistics.median(shares), 4) if shares else None
    return Counts(named=len(naming), found=len(found), by_others=len(by_others), share=share)


def _all(names: Iterable[Iterable[str]]) -> list[str]:
    return sorted({one for some in names for one in some})


def _times(runs: Sequence[HealthyRun], what: Callable[[HealthyRun], Collection[str]], name: str) -> int:
    return sum(name in what(run) for run in runs)
