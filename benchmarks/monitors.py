"""The monitors on planted faults, on healthy odd trainings, and what watching costs.

Detection: each fault of planted_dynamics.py, planted_values.py and planted_processes.py on up to four hosts, whose runs
are ten times as long as in preflight's benchmark and end when the fault is told. A quarter of the pairs (neither fault
nor host held back) was looked at while thresholds were chosen; the figures of the other faults and hosts are apart.
False alarms: each set-up of healthy.py and of healthy_dynamics.py. Overhead: the loop bare, watched by nothing, watched
by all with progressive validation, under detect_anomaly, and Lightning where it is installed, in turns in one process.
Rates: spikes and rises in trainings that no rule was made for (unprepared.py), healthy and damaged.

Each of these trainings has a process of its own, as many at a time as there are cores: what one has left in memory is
nothing to another. Only faults of time and memory depend on the machine and on what else it does.

    make bench NAME=monitors                                  about 45 minutes on 2 cores
    python -m benchmarks.monitors healthy mlp gru --seeds 1   one part, or some names of it
    python -m benchmarks.monitors rates --seeds 3             spikes and rises elsewhere, a few minutes
    python -m benchmarks.monitors planted --record            its counts of each monitor and cause go into record.json
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

import torch
from torch import distributed

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_dynamics import DYNAMIC
from benchmarks.monitored import monitored
from benchmarks.monitors_overhead import overhead
from benchmarks.monitors_rates import HEALTHY as UNPREPARED
from benchmarks.monitors_rates import damaged_runs, healthy_runs, rate_figures
from benchmarks.planted_dynamics import FAULTS, HELD_BACK_HOSTS
from benchmarks.planted_processes import PROCESSES, in_two_processes
from benchmarks.planted_values import VALUES
from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy, whole_parts
from benchmarks.result import arguments, begin, finish, hardware
from benchmarks.setup import on_device
from benchmarks.unprepared_damage import DAMAGED
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.monitors.causes import RULES
from trainworthy.lifecycle.protocol.training_figures import Alarm

T = TypeVar("T")
PARTS = ("planted", "healthy", "rates", "overhead")
# What healthy runs give no occasion to: they have no heartbeat, no GPU, and one process.
NOT_THERE = {"hang", "gpu_idle", "replicas_apart"}
SEVERITIES = ("critical", "warning")
TARGETS = {
    "missed": 0.05, "cause_wrong": 0.2, "share_of_run_median": 0.02, "critical_per_run": 0.01,
    "held_back_missed": 0.05, "held_back_cause_wrong": 0.2, "mlp_watched_ratio": 1.04, "mlp_watched_ms": 0.1,
    "transformer_watched_ratio": 1.02, "mlp_watched_to_fused_ratio": 1.04, "mlp_watched_to_fused_ms": 0.1,
    "transformer_watched_to_fused_ratio": 1.02, "alike_critical": 0.001,
}  # fmt: skip
ALL: dict[str, Callable[[int], Subject]] = {**HEALTHY, **DYNAMIC}
PLANTED = {**FAULTS, **VALUES, **PROCESSES}
# Held back once, until a monitor was changed for what was seen there.
LOOKED_AT = ("layer_rate_huge", "gradient_added_in_part", "bf16_weights_fine", "weights_decay", "pulls_together")
MOVED = {("rate_hundredfold_later", "cnn"), ("rate_hundredfold_later", "unet")} | {
    (name, host) for name in LOOKED_AT for host in PLANTED[name].hosts
}  # fmt: skip


# What a short run tries: a fault in one process and one in two, each on its first host, and the first healthy set-up.
SHORT_FAULTS = (
    next(name for name, fault in FAULTS.items() if fault.held_back),
    next(name for name, fault in PROCESSES.items() if fault.processes > 1),
)
SHORT_HEALTHY, SHORT_RATES = (next(iter(HEALTHY)),), (next(iter(UNPREPARED)),)


@dataclass(frozen=True)
class Tried:
    """A fault on a host: after how many updates it was told, None if never, and what was said to be the cause.

    `monitor` and `cause` are those of the first alarm that names it, "" if none did; `named` and `causes` those that
    may.
    """

    named: tuple[str, ...]
    causes: tuple[str, ...]
    monitor: str
    cause: str
    held_back: bool
    after: int | None
    share: float
    right: bool
    slow: bool


def _each(run: Callable[..., tuple[str, T]], asked: Sequence[tuple[object, ...]]) -> Iterator[T]:
    """What `run` gives for each, in their order, each in a process of its own; its words are printed as they come."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as turns:
        for words, found in turns.map(lambda one: _apart(run, one), asked):
            print(words, flush=True)
            yield found


def _apart(run: Callable[..., tuple[str, T]], asked: tuple[object, ...]) -> tuple[str, T]:
    """A process that has run nothing before, with one thread: for networks so small a second costs more than it gives.

    Raises BrokenProcessPool if it dies.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as process:
        return process.submit(run, *asked).result()


def planted(names: Iterable[str], seeds: int, hosts: int | None, record: bool = False) -> dict[str, float]:
    """A line for each fault, host and seed; detection, causes and delays of those that were held back, and of all.

    `hosts`: only so many of a fault's hosts, the first ones; all of them with None. `record` keeps the counts of each
    monitor, and of each cause in the faults that were found.
    """
    asked = [(name, host, seed) for name in names for host in PLANTED[name].hosts[:hosts] for seed in range(seeds)]
    tried = list(_each(_try, asked))
    if record:
        checks = of_faults([FaultRun(one.named, (one.monitor,), one.share) for one in tried])
        causes = of_faults([FaultRun(one.causes, (one.cause,)) for one in tried if one.monitor])
        keep("monitors", "planted", len(tried), checks, causes)
    held_back = [one for one in tried if one.held_back]
    return _figures(tried, "") | (_figures(held_back, "held_back_") if held_back else {})


def _try(name: str, host: str, seed: int) -> tuple[str, Tried]:
    if PLANTED[name].processes > 1 and not distributed.is_initialized():
        return in_two_processes(_try, name, host, seed)
    fault = PLANTED[name]
    planted = fault.make(host, seed)
    seen = monitored(
        planted.subject, before=planted.before, until=planted.found, hang_seconds=planted.hang_seconds
    )  # fmt: skip
    first = seen.told(planted.found)
    cause = first.rule if first else ""
    right = cause in planted.cause
    after, planned = first and first.step - planted.onset, planted.subject.plan.last_step
    told = ", ".join(f"{one.monitor} {one.step}" for one in seen.alarms)
    word = "MISSED" if first is None else "right " if right else "other "
    held_back = (fault.held_back or host in HELD_BACK_HOSTS) and (name, host) not in MOVED
    words = (
        f"{word} {name} {host} {seed}{' (held back)' if held_back else ''}: after {after} of {planned}; "
        f"{cause or 'no cause'}; {told or 'nothing'}"
    )
    share = 1.0 if first is None else (after or 0) / planned
    monitor = first.monitor if first else ""
    return words, Tried(planted.found, planted.cause, monitor, cause, held_back, after, share, right, fault.slow)


def _figures(tried: Sequence[Tried], prefix: str) -> dict[str, float]:
    found = sorted(one.after for one in tried if one.after is not None)
    quick = [one.after <= 20 for one in tried if one.after is not None and not one.slow]
    print(f"{prefix}{len(found)} of {len(tried)} found, {sum(one.right for one in tried)} with the right cause first")
    return {
        f"{prefix}tried": len(tried), f"{prefix}missed": 1 - len(found) / len(tried),
        f"{prefix}cause_wrong": 1 - sum(one.right for one in tried) / len(tried),
        f"{prefix}steps_median": statistics.median(found), f"{prefix}steps_p95": found[int(0.95 * (len(found) - 1))],
        f"{prefix}share_of_run_median": statistics.median(one.share for one in tried),
        f"{prefix}within_20_but_trends": sum(quick) / max(1, len(quick)),
    }  # fmt: skip


def healthy(names: Iterable[str], seeds: int, record: bool = False) -> dict[str, float]:
    """A line for each alarm; critical ones and warnings a run. `record` keeps the counts of each monitor and cause."""
    seen = list(_each(_watch, [(name, seed) for name in names for seed in range(seeds)]))
    told = [[alarm.severity for alarm in alarms] for alarms in seen]
    runs, critical = len(told), sum("critical" in severities for severities in told)
    warnings = sum("warning" in severities for severities in told)
    if record:
        monitors = {name for rule in RULES for name in rule.explains} - NOT_THERE
        rules = {rule.name for rule in RULES if not NOT_THERE & set(rule.explains[:1])}
        checks = of_healthy([_as_healthy(alarms, monitors, lambda alarm: alarm.monitor) for alarms in seen])
        causes = of_healthy([_as_healthy(alarms, rules, lambda alarm: alarm.rule) for alarms in seen])
        keep("monitors", "healthy", runs, checks, causes)
    print(f"{runs} healthy runs: {critical} with a critical alarm, {warnings} with a warning")
    return {"healthy_runs": runs, "critical_per_run": critical / runs, "warnings_per_run": warnings / runs}


def rates(names: Iterable[str], seeds: int, damaged: int | None) -> dict[str, float]:
    """A line for each training of unprepared.py, and for each that is damaged; shares of runs with an alarm.

    `damaged`: only so many of those that are damaged, the first ones; all of them with None.
    """
    names = list(names)
    asked = [(host, damage, seeds) for host, damage in DAMAGED if host in names]
    seen = [*_each(healthy_runs, [(name, seeds) for name in names]), *_each(damaged_runs, asked[:damaged])]
    return rate_figures([one for runs in seen for one in runs])


def _as_healthy(alarms: Sequence[Alarm], looked: Collection[str], name: Callable[[Alarm], str]) -> HealthyRun:
    told = {severity: {name(one) for one in alarms if one.severity == severity} - {""} for severity in SEVERITIES}
    return HealthyRun(looked, told["critical"], told["warning"])


def _watch(name: str, seed: int) -> tuple[str, list[Alarm]]:
    found = monitored(on_device(ALL[name](seed))).alarms
    alarms = [f"        {one.severity} {one.monitor} at {one.step}: {one.evidence}" for one in found]
    return "\n".join([f"{'told ' if found else 'quiet'} {name} {seed}", *alarms]), list(found)


def main() -> None:
    """Run all parts, or the one that is named."""
    parser = arguments(__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="all of them without it")
    parser.add_argument("names", nargs="*", help="faults or set-ups of that part; all of them without it")
    parser.add_argument("--seeds", type=int, default=0, help="seeds of each; else five healthy, one planted")
    parser.add_argument("--record", action="store_true", help="keep the counts of each monitor, of whole parts")
    asked = parser.parse_args()
    short, record = asked.short, whole_parts(parser, asked, asked.names)
    seeds, hosts = (1, 1) if short else (5, None)
    begin(short)
    # The networks are so small that a second thread costs more than it gives.
    torch.set_num_threads(1)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "planted": lambda: planted(
            asked.names or (SHORT_FAULTS if short else PLANTED), asked.seeds or 1, hosts, record
        ),
        "healthy": lambda: healthy(asked.names or (SHORT_HEALTHY if short else ALL), asked.seeds or seeds, record),
        "rates": lambda: rates(
            asked.names or (SHORT_RATES if short else UNPREPARED), asked.seeds or (1 if short else 3), hosts
        ),
        "overhead": lambda: overhead(short),
    }
    figures: dict[str, float] = {}
    for name in [asked.part] if asked.part else PARTS:
        figures |= parts[name]()
    print(hardware(), flush=True)
    targets = TARGETS if not asked.part else {k: v for k, v in TARGETS.items() if k in figures}
    # All others are shares, delays and what an update takes more.
    measured = {name for name in figures if name.endswith(("tried", "_runs", "_ratio", "_bare_ms"))}
    finish("monitors", figures, targets, short=short, zero_allowed=figures.keys() - measured)


if __name__ == "__main__":
    main()
