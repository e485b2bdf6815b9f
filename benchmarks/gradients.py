"""Gradients held against the slope of the loss (wiring.gradient_is_slope), on healthy networks and on planted faults.

Healthy are the set-ups that preflight and the monitors are held against, and those of healthy_gradients.py. A false
alarm is a failure of one of them, or a warning of one that neither detaches nor turns a part on purpose.

    make bench NAME=gradients                              a minute
    python -m benchmarks.gradients healthy planted --seeds 3
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import torch

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import FRESH_HEALTHY
from benchmarks.healthy_gradients import DEVIATES, HEALTHY_GRADIENTS
from benchmarks.monitors import ALL
from benchmarks.planted_gradients import PLANTED_GRADIENTS
from benchmarks.result import arguments, begin, finish
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.true_gradient import gradient_is_slope
from trainworthy.lifecycle.gates.check import Outcome

PARTS = ("healthy", "own", "planted")
# Of the set-ups that others are held against: a held twin, spikes straight through, samples that are held, and two
# whose gradient is turned round.
ON_PURPOSE = (*DEVIATES, "siamese", "spiking", "energy", "domain_adversarial", "adversarial")
TARGETS = {"false_alarms": 0, "not_told": 0, "missed": 0, "cpu_seconds": 0.3}


def kind(found: Outcome) -> str:
    """fail, warning or nothing; what is not known is `unknown`."""
    if found.status == "fail":
        return found.severity or "fail"
    return "nothing" if found.status == "pass" else "unknown"


def asked(subject: Subject) -> tuple[Outcome, float]:
    """What is found, and its processor seconds."""
    with same_random_numbers():
        began = time.process_time()
        found = gradient_is_slope(subject)
        return found, time.process_time() - began


def measured(
    subjects: Iterable[tuple[str, Callable[[int], Subject], str]], seeds: int, seconds: list[float]
) -> tuple[int, int, int]:
    """Runs, those that are told otherwise than wanted, and those of which nothing was known; each is printed."""
    runs = wrong = unknown = 0
    for name, make, wanted in subjects:
        for seed in range(seeds):
            found, took = asked(make(seed))
            seconds.append(took)
            got = kind(found)
            runs, wrong, unknown = runs + 1, wrong + (got not in (wanted, "unknown")), unknown + (got == "unknown")
            if got != "nothing" or wanted != got:
                word = "MISS" if got != wanted else "ok"
                print(f"{word:<5}{name} {seed}: {got} {found.code}: {found.evidence}", flush=True)
    return runs, wrong, unknown


def main() -> None:
    """Run all parts, or those that are named."""
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all of them without it")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    begin(given.short)
    # The networks are so small that a second thread costs more than it gives.
    torch.set_num_threads(1)
    parts: dict[str, list[tuple[str, Callable[[int], Subject], str]]] = {
        "healthy": [(name, make, _wanted(name)) for name, make in {**HEALTHY, **FRESH_HEALTHY, **ALL}.items()],
        "own": [(name, _subject(make), _wanted(name)) for name, make in HEALTHY_GRADIENTS.items()],
        "planted": [(name, _subject(make), told) for name, (make, told) in PLANTED_GRADIENTS.items()],
    }  # fmt: skip
    figures = {"false_alarms": 0.0, "not_told": 0.0, "missed": 0.0}
    seconds: list[float] = []
    # What torch loads at its first update is no cost of the check.
    asked(HEALTHY_GRADIENTS["absolute"](0).subject())
    for part in given.parts or PARTS:
        chosen = parts[part][:1] if given.short else parts[part]
        runs, wrong, unknown = measured(chosen, given.seeds, seconds)
        figures["missed" if part == "planted" else "false_alarms"] += wrong
        figures["not_told"] += unknown
        figures[f"{part}_runs"] = runs
        print(f"{part}: {len(chosen)} networks, {runs} runs, {wrong} told otherwise than wanted, {unknown} not known")
    figures["cpu_seconds"] = max(seconds)
    print(f"processor seconds: median {statistics.median(seconds):.3f}, most {max(seconds):.3f}")
    finish("gradients", figures, TARGETS, short=given.short, zero_allowed={"false_alarms", "not_told", "missed"})


def _subject(make: Callable[[int], Setup]) -> Callable[[int], Subject]:
    return lambda seed: make(seed).subject()


def _wanted(name: str) -> str:
    return "warning" if name in ON_PURPOSE else "nothing"


if __name__ == "__main__":
    main()
