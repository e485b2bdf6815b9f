"""How long a run will still take: preflight's forecast for the stages, the newest whole run's seconds for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainworthy.lifecycle.protocol.forecasts import RunTime
from trainworthy.lifecycle.protocol.records import STAGES

# Steps whose seconds say how fast the machine is. The first two take next to nothing where their bytes lie there.
PACE = ("preflight", *STAGES)
# Of a use case that never came so far: so many times what a worker took to start. Chosen by docs/benchmarks.md's table.
BEFORE_FIRST: Mapping[str, float] = {"evaluation": 5.0, "promotion": 3.5}


def forecast_seconds(time: RunTime, updates: Mapping[str, int]) -> dict[str, float]:
    """Seconds of each step after preflight, by its forecast and the `updates` of each stage.

    A stage has a third of what does not grow with the updates.
    """
    total, fixed_seconds = sum(updates.values()), time.beside_seconds
    growing = (time.seconds - fixed_seconds) / total if total else 0.0
    stages: dict[str, float] = {stage: fixed_seconds / len(STAGES) + growing * updates[stage] for stage in STAGES}
    return stages | {step: times * time.start_seconds for step, times in BEFORE_FIRST.items()}


def seconds_left(
    remaining: Sequence[str], made: Mapping[str, float], earlier: Mapping[str, float], forecast: Mapping[str, float]
) -> float | None:
    """Seconds of the `remaining` steps; None if there is no basis for one of them.

    `made` are the seconds of this run's own steps, `earlier` those of an earlier run's: what it took is multiplied by
    how much longer this run's steps took than its. The `forecast` goes before it for the stages, after it for the rest.
    """
    pace = _pace(made, earlier)
    stages = {step: seconds for step, seconds in forecast.items() if step in STAGES}
    known = dict(forecast) | {step: pace * seconds for step, seconds in earlier.items()} | stages
    return sum(known[step] for step in remaining) if all(step in known for step in remaining) else None


def in_words(seconds: float) -> str:
    """For example `about 40 seconds left`, `about 4 minutes left`, `about 2.5 hours left`."""
    if seconds < 90:
        step = 5 if seconds < 30 else 10
        return f"about {max(step, step * round(seconds / step))} seconds left"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} minutes left"
    return f"about {seconds / 3600:.1f} hours left"


def _pace(made: Mapping[str, float], earlier: Mapping[str, float]) -> float:
    both = [step for step in PACE if step in made and step in earlier]
    before = sum(earlier[step] for step in both)
    return sum(made[step] for step in both) / before if before else 1.0
