"""The memory forecast against the allocator's truth, on known networks and on others that it was not made on.

The truth on a CPU is the peak of the bytes that torch's allocator has given out over two updates, as it tells its
profiler; on CUDA it is max_memory_allocated. Beside it stand the rule of 40 GB a billion parameters, and the formula
that `accelerate estimate-memory` prints for training with Adam: four times the weights. accelerate is not installed.

    make bench NAME=preflight_memory                    172 configurations, 1 to 35 CPU seconds each
    python -m benchmarks.preflight_memory fresh GPT     networks of one use, with this in their name
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.preflight_memory_fresh import FRESH
from benchmarks.preflight_memory_held_back import HELD_BACK
from benchmarks.preflight_memory_networks import NETWORKS, Network
from benchmarks.preflight_memory_unseen import UNSEEN
from benchmarks.result import arguments, begin, finish, hardware
from benchmarks.setup import on_device
from trainworthy.lifecycle.engine.preflight.memory.forecast import step_memory
from trainworthy.lifecycle.engine.preflight.memory.real_step import memory_levels
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.gates.preflight import RULE_BYTES
from trainworthy.lifecycle.protocol.forecasts import MemoryForecast

GPUS = {"l4": 24.0}
TARGETS = {"transformer_error": 0.01, "fp32_error": 0.05, "bf16_error": 0.10, "seconds": 10.0, "outside": 0.05}


USES = ("fresh", "held_back", "unseen", "known")
Precision = Literal["fp32", "bf16"]


class Row(NamedTuple):
    """One network in one precision, with its batch in so many parts."""

    network: Network
    precision: str
    accumulate: int
    forecast: MemoryForecast
    real: int
    seconds: float
    cpu_seconds: float

    @property
    def error(self) -> float:
        return self.forecast.value / self.real - 1

    @property
    def traced(self) -> int:
        """The forecast without its real steps."""
        return self.forecast.value - self.forecast.kinds.get("kernels", 0)

    @property
    def inside(self) -> bool:
        return self.forecast.low <= self.real <= self.forecast.high


def measure(networks: Iterable[Network], precisions: Sequence[Precision], parts: Sequence[int]) -> Iterator[Row]:
    for network in networks:
        for precision in precisions:
            for accumulate in parts:
                subject = on_device(network.subject(precision, accumulate))
                started, cpu_started = time.perf_counter(), _cpu_seconds()
                found = step_memory(subject, GPUS, repr, lambda forecast: True)
                seconds, cpu_seconds = time.perf_counter() - started, _cpu_seconds() - cpu_started
                assert found.forecast is not None, (network.name, found.problem)
                yield Row(network, precision, accumulate, found.forecast, allocated(subject), seconds, cpu_seconds)


def _cpu_seconds() -> float:
    """Of this process and the forks that have ended."""
    return sum(os.times()[:4])


def allocated(subject: Subject) -> int:
    """The allocator's peak over two updates of the whole batch; its rows, made before, are not counted."""
    rows = subject.plan.batch_size
    data = subject.training.take(torch.arange(rows, device=subject.device) % len(subject.training.targets))

    def update() -> None:
        state = subject.state()
        for state.step in range(2):
            train_step(state, data, torch.arange(rows, device=subject.device), subject.recipe)

    if subject.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        update()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        update()
    return max(memory_levels(profiled)[1])


def summary(rows: list[Row]) -> dict[str, float]:
    """Errors are those of steps that could be followed; the interval and the seconds are held against all.

    An error of a kind that has no row is left out: 0 would say that it was measured.
    """
    followed = [row for row in rows if row.forecast.source != "extrapolated"]

    kinds: dict[str, list[float]] = {}
    for row in followed:
        kind = "transformer" if row.network.transformer else row.precision
        kinds.setdefault(f"{kind}_error", []).append(abs(row.error))
    return {
        **{name: max(errors) for name, errors in kinds.items()},
        "seconds": max(row.seconds for row in rows),
        "median_seconds": median(row.seconds for row in rows),
        "cpu_seconds": max(row.cpu_seconds for row in rows),
        "median_cpu_seconds": median(row.cpu_seconds for row in rows),
        "outside": sum(not row.inside for row in rows) / len(rows),
        "above": sum(row.real > row.forecast.high for row in rows) / len(rows),
        "configurations": len(rows),
        "corrected": sum(row.forecast.source == "corrected" for row in rows),
        "not_followed": len(rows) - len(followed),
    }


def print_row(row: Row) -> None:
    rule, formula = (row.forecast.parameter_count * size / row.real - 1 for size in (RULE_BYTES, 4 * 4))
    parts = f"{row.precision}, {row.accumulate} {'part' if row.accumulate == 1 else 'parts'}"
    followed = row.forecast.source != "extrapolated"
    traced = f"{row.traced / row.real - 1:+.1%}" if followed else "not followed"
    print(
        f"| {row.network.name}, {parts} | {row.network.use} | {row.real / 1e6:.2f} | {row.error:+.2%} | {traced} | "
        f"{row.forecast.low / 1e6:.2f} to {row.forecast.high / 1e6:.2f}{'' if row.inside else ' **missed**'} | "
        f"{row.forecast.source} | {rule:+.0%} | {formula:+.0%} | {row.seconds:.1f} | {row.cpu_seconds:.1f} |",
        flush=True,
    )


def main() -> None:
    """Run every network, those that are asked for, or the first of each use."""
    parser = arguments(__doc__)
    parser.add_argument("use", nargs="?", choices=(*USES, "all"), default="all", help="all of them without it")
    parser.add_argument("named", nargs="?", default="", help="part of a network's name")
    asked = parser.parse_args()
    begin(asked.short)
    warnings.filterwarnings("ignore")
    sets = dict(zip(USES, (FRESH, HELD_BACK, UNSEEN, NETWORKS), strict=True))
    networks = [one[:1] if asked.short else one for use, one in sets.items() if asked.use in (use, "all")]
    chosen = [network for one in networks for network in one if asked.named in network.name]
    columns = "network | use | real, MB | forecast | trace alone | interval | source | 40 GB rule | 4 × weights | s"
    print(f"| {columns} | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    precisions: tuple[Precision, ...] = ("fp32",) if asked.short else ("fp32", "bf16")
    parts = (1,) if asked.short else (1, 4)
    for row in measure(chosen, precisions, parts):
        rows.append(row)
        print_row(row)
    print(hardware())
    for part in reversed(USES):
        if of_part := [row for row in rows if row.network.use == part]:
            figures = summary(of_part)
            zero_allowed = figures.keys() - {name for name in figures if "seconds" in name}
            targets = {name: most for name, most in TARGETS.items() if name in figures}
            name = f"preflight_memory, {part} networks"
            finish(name, figures, targets, short=asked.short, zero_allowed=zero_allowed)


if __name__ == "__main__":
    main()
