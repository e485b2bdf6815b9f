"""How far preflight's time forecast is off: twelve timed updates against a training of some seconds.

Eight networks, five times each, one network after the other, so that a slow minute meets all of them. The forecast
is the median update times the number of updates; the truth is the wall time of the product's own loop.

    python -m benchmarks.preflight_seconds         about 4 minutes on 2 cores
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.networks import cnn, gpt, mlp, unet
from benchmarks.result import arguments, begin, finish
from benchmarks.setup import Setup
from trainworthy.lifecycle.cost.duration import HIGH, LOW
from trainworthy.lifecycle.engine.preflight.throughput.step_time import measure_step
from trainworthy.lifecycle.engine.training.loop import train


class Size(NamedTuple):
    """How often each network is timed, and how many seconds, or updates if that takes longer, it trains."""

    repeats: int
    training_seconds: float
    updates: int


WHOLE, SHORT = Size(5, 2.5, 20), Size(1, 0.0, 2)
TARGETS = {"median_error": 0.15}
NETWORKS = {
    "MLP": lambda seed: mlp(seed),
    "MLP, batch 256": lambda seed: replace(mlp(seed), batch_size=256),
    "CNN": lambda seed: cnn(seed),
    "CNN, bf16": lambda seed: replace(cnn(seed), precision="bf16"),
    "U-Net": lambda seed: unet(seed),
    "U-Net, 4 parts": lambda seed: replace(unet(seed), batch_size=8, accumulate=4),
    "GPT": lambda seed: gpt(seed),
    "GPT, batch 128": lambda seed: replace(gpt(seed), batch_size=128),
}


@dataclass(frozen=True)
class Row:
    """A network's forecast and true seconds in one repeat."""

    network: str
    forecast: float
    actual: float

    @property
    def error(self) -> float:
        return self.actual / self.forecast - 1


def measure(size: Size) -> list[Row]:
    """So many rows a network, interleaved."""
    return [_row(name, make(repeat), size) for repeat in range(size.repeats) for name, make in NETWORKS.items()]


def _row(name: str, setup: Setup, size: Size) -> Row:
    subject = setup.subject()
    step = measure_step(subject).seconds
    updates = max(size.updates, math.ceil(size.training_seconds / step))
    plan = subject.plan.model_copy(update={"horizon_steps": updates, "last_step": updates})
    state, recipe = subject.state(), replace(subject.recipe, learning_rate=lambda step: setup.learning_rate / 10)
    started = time.perf_counter()
    alarm = train(state, subject.training, plan, recipe, lambda state, update: False)
    seconds = time.perf_counter() - started
    assert alarm is None, alarm
    return Row(name, updates * step, seconds)


def main() -> None:
    """Print each network's errors and their median over all."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    rows = measure(SHORT if short else WHOLE)
    print(f"{'network':16}{'median error':>14}{'from':>9}{'to':>9}")
    for name in NETWORKS:
        errors = [row.error for row in rows if row.network == name]
        print(f"{name:16}{statistics.median(map(abs, errors)):14.1%}{min(errors):+9.1%}{max(errors):+9.1%}")
    inside = [LOW <= row.actual / row.forecast <= HIGH for row in rows]
    figures = {
        "median_error": statistics.median(abs(row.error) for row in rows),
        "inside_interval": sum(inside) / len(inside),
    }
    finish("preflight_seconds", figures, TARGETS, short=short, zero_allowed=["inside_interval"])


if __name__ == "__main__":
    main()
