"""Whether the benchmark begins late enough after everything that the models have seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from lifecycle.checks import CheckResult

NAME = "benchmark_window"


def window_check(ends: Mapping[str, str], benchmark_start: str, embargo_days: int) -> CheckResult:
    """Pass if the embargo's whole days lie between each split in `ends` (name → last ISO timestamp) and the benchmark.

    Days are those of each timestamp's own zone, as in data/split.py: where clocks go forward, the split's day between
    Saturday 23:50 and Monday 0:00 has 0.965 of 24 hours. A timestamp that cannot be read is an error.
    A benchmark that lies inside or before the training period flatters: +0.0096 log-loss on flights.
    """
    fix = "roll the benchmark to rows that are newer than the models' data, or train on older rows"
    try:
        start = _day(benchmark_start)
        gaps = {name: (start - _day(end)).days - 1 for name, end in ends.items()}
    except (TypeError, ValueError) as error:
        return CheckResult(
            name=NAME, status="error", required=True, evidence=f"a time could not be read: {error}", fix=fix
        )
    if not gaps or embargo_days < 0:
        evidence = f"{len(gaps)} splits and an embargo of {embargo_days} days: nothing to compare"
        return CheckResult(name=NAME, status="error", required=True, evidence=evidence, fix=fix)
    nearest = min(gaps, key=lambda name: gaps[name])
    return CheckResult(
        name=NAME,
        status="pass" if gaps[nearest] >= embargo_days else "fail",
        required=True,
        observed=gaps[nearest],
        threshold=embargo_days,
        evidence=f"{nearest} ends {ends[nearest]}, the benchmark starts {benchmark_start} (in whole days between)",
        fix=fix,
    )


def _day(value: str) -> date:
    """The calendar day of an ISO timestamp in its own zone."""
    return datetime.fromisoformat(value).date()
