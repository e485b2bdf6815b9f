"""The memory forecast against the allocator's truth, on networks that its interval was not chosen on.

The truth on a CPU is the peak of the bytes that torch's allocator has given out over two updates, as it tells its
profiler; on CUDA it is max_memory_allocated. Beside it stand the rule of 40 GB a billion parameters, and the formula
that `accelerate estimate-memory` prints for training with Adam: four times the weights.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.preflight_memory_networks import NETWORKS, Network
from benchmarks.result import finish, hardware
from lifecycle.preflight.memory.memory_forecast import RULE_BYTES, MemoryForecast
from lifecycle.preflight.memory.real_step import memory_levels
from lifecycle.preflight.memory.step_memory import follow, from_trace, with_real_steps
from lifecycle.preflight.subject import Subject, take
from lifecycle.training.loop import train_step

TARGETS = {"transformer_error": 0.01, "fp32_error": 0.05, "bf16_error": 0.10, "seconds": 10.0, "outside": 0.05}


class Row(NamedTuple):
    """One network in one precision, with its batch in so many parts."""

    network: Network
    precision: str
    accumulate: int
    forecast: MemoryForecast
    traced: int
    real: int
    seconds: float

    @property
    def error(self) -> float:
        return self.forecast.value / self.real - 1

    @property
    def inside(self) -> bool:
        return self.forecast.low <= self.real <= self.forecast.high


def measure() -> Iterator[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for network in NETWORKS:
        for precision in ("fp32", "bf16"):
            for accumulate in (1, 4):
                subject = replace(network.subject(precision, accumulate), device=device)
                subject = replace(subject, training=subject.training if device == "cpu" else _moved(subject, device))
                started = time.perf_counter()
                followed = follow(subject, repr)
                assert followed.timeline is not None, (network.name, followed.problem)
                forecast = with_real_steps(subject, followed)
                seconds = time.perf_counter() - started
                traced = from_trace(subject, followed.timeline).value
                yield Row(network, precision, accumulate, forecast, traced, allocated(subject), seconds)


def _moved(subject: Subject, device: str):
    data = subject.training
    inputs = {name: tensor.to(device) for name, tensor in data.inputs.items()}
    return replace(data, inputs=inputs, targets=data.targets.to(device))


def allocated(subject: Subject) -> int:
    """The allocator's peak over two updates of the whole batch; its rows, made before, are not counted."""
    rows = subject.plan.batch_size
    data = take(subject.training, torch.arange(rows, device=subject.device) % len(subject.training.targets))

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
    """The figures of the networks that the interval was not chosen on."""
    test = [row for row in rows if row.network.use == "test"]

    def worst(chosen: list[Row]) -> float:
        return max(abs(row.error) for row in chosen)

    other = [row for row in test if not row.network.transformer]
    return {
        "transformer_error": worst([row for row in test if row.network.transformer]),
        "fp32_error": worst([row for row in other if row.precision == "fp32"]),
        "bf16_error": worst([row for row in other if row.precision == "bf16"]),
        "seconds": max(row.seconds for row in rows),
        "median_seconds": median(row.seconds for row in rows),
        "outside": sum(not row.inside for row in test) / len(test),
        "tested": len(test),
    }


def print_row(row: Row) -> None:
    rule, formula = (row.forecast.parameter_count * size / row.real - 1 for size in (RULE_BYTES, 4 * 4))
    parts = f"{row.precision}, {row.accumulate} {'part' if row.accumulate == 1 else 'parts'}"
    print(
        f"| {row.network.name}, {parts} | {row.network.use} | {row.real / 1e6:.2f} | {row.error:+.2%} | "
        f"{row.traced / row.real - 1:+.1%} | {row.forecast.low / 1e6:.2f} to {row.forecast.high / 1e6:.2f}"
        f"{'' if row.inside else ' **missed**'} | {rule:+.0%} | {formula:+.0%} | {row.seconds:.1f} |",
        flush=True,
    )


def main() -> None:
    warnings.filterwarnings("ignore")
    print(hardware())
    print("| network | used for | real, MB | forecast | trace alone | interval | 40 GB rule | 4 × weights | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for row in measure():
        rows.append(row)
        print_row(row)
    finish("preflight_memory", summary(rows), TARGETS)


if __name__ == "__main__":
    main()
