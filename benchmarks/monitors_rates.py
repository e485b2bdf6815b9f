"""How often spikes and rises are told in the healthy trainings of unprepared.py, and how soon in damaged ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.unprepared import ALIKE, BEFORE, NOT_ALIKE, UNPREPARED, updates
from benchmarks.unprepared_damage import DAMAGE
from trainworthy.lifecycle.engine.training.monitors.curve import RiseAboveBest
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.spikes import Spikes
from trainworthy.lifecycle.protocol.signals import WINDOW, Signals

HEALTHY = {**ALIKE, **NOT_ALIKE}


@dataclass(frozen=True)
class Told:
    """Of a run: the monitors of each severity; of a damaged one, updates from the damage to the first alarm of each."""

    alike: bool
    damaged: bool
    critical: int | None
    warning: int | None


def told(seen: Iterable[Signals], reweighted: bool = False) -> list[Finding]:
    """What Spikes and RiseAboveBest find, shown as a watch shows them; the second not of a `reweighted` training."""
    spikes, rise, window, found = Spikes(), RiseAboveBest(), [], []
    for one in seen:
        found.append(spikes.after_backward(one))
        window.append(one)
        if len(window) == WINDOW:
            found.append(None if reweighted else rise.after_window(window))
            window = []
    return [one for one in found if one is not None]


def healthy_runs(name: str, seeds: int) -> tuple[str, list[Told]]:
    """Runs of a healthy training, with a line that counts what was told."""
    reweighted = name in UNPREPARED and UNPREPARED[name].weight is not None
    found = [told(HEALTHY[name](seed), reweighted) for seed in range(seeds)]
    return _words(name, found), [_told(name in ALIKE, False, one, 0) for one in found]


def damaged_runs(name: str, damage: str, seeds: int) -> tuple[str, list[Told]]:
    """Runs of a training that is damaged from an update on; what is told before counts as of a healthy one."""
    training, since = UNPREPARED[name], int(BEFORE * UNPREPARED[name].steps)
    found = [told(updates(training, seed, DAMAGE[damage])) for seed in range(seeds)]
    later = [[one for one in some if one.step >= since] for some in found]
    return _words(f"{name}, {damage}", later), [_told(True, True, one, since) for one in later]


def rate_figures(runs: Sequence[Told]) -> dict[str, float]:
    """Shares of runs with an alarm, and delays."""
    alike = [one for one in runs if one.alike and not one.damaged]
    others = [one for one in runs if not one.alike]
    damaged = [one for one in runs if one.damaged]
    delays = [one.critical for one in damaged if one.critical is not None]
    for what, some in (("losses drawn alike", alike), ("others", others), ("damaged", damaged)):
        critical, any_ = _share(some, critical=True), _share(some, critical=False)
        print(f"{what}: {len(some)} runs, {critical:.1%} with a critical alarm, {any_:.1%} with any")
    return {
        "alike_runs": len(alike), "alike_critical": _share(alike, critical=True),
        "alike_told": _share(alike, critical=False), "others_critical": _share(others, critical=True),
        "damaged_tried": len(damaged), "damaged_critical": _share(damaged, critical=True),
        "damaged_told": _share(damaged, critical=False),
        "damaged_critical_median": statistics.median(delays) if delays else 0.0,
    }  # fmt: skip


def _share(runs: Sequence[Told], *, critical: bool) -> float:
    told = [one.critical is not None or not (critical or one.warning is None) for one in runs]
    return sum(told) / max(1, len(told))


def _told(alike: bool, damaged: bool, found: Sequence[Finding], since: int) -> Told:
    first = {
        severity: min((one.step - since for one in found if one.severity == severity), default=None)
        for severity in ("critical", "warning")
    }
    return Told(alike, damaged, first["critical"], first["warning"])


def _words(name: str, found: Sequence[Sequence[Finding]]) -> str:
    monitors = sorted({one.monitor for some in found for one in some})
    counts = [f"{monitor} in {sum(monitor in {one.monitor for one in some} for some in found)}" for monitor in monitors]
    return f"{name}: {len(found)} runs; {', '.join(counts) or 'nothing'}"
