"""What is told about memory: an update's peak by kind, and whether it fits each GPU."""

from __future__ import annotations

from typing import Literal

from lifecycle.records import Frozen

Source = Literal["traced", "calibrated", "corrected", "extrapolated"]


# Low and high end of what scoring holds, over the value: a trace's, since no real step is made of it.
SCORING = (0.94, 1.3)


class MemoryForecast(Frozen):
    """Peak bytes of an update with `rows` rows a forward pass; the training rows themselves are not among them.

    `source`: traced on fake tensors; calibrated by real steps on a few rows; corrected by them, since operations keep
    more than fake tensors show; or extrapolated from these alone. `kinds` sum up to `value`: parameters (with buffers),
    gradients, optimizer, activations (all that is for a while), and kernels, which is what real operations hold over
    what was followed. They are empty if extrapolated. `average` is among them if the training keeps one of its weights.
    `scoring` is the peak while the validation split is scored, 0 where that is not known: never found by a real step.
    """

    rows: int
    accumulate: int
    precision: Literal["fp32", "bf16", "fp16"]
    source: Source
    parameter_count: int
    kinds: dict[str, int]
    value: int
    low: int
    high: int
    scoring: int = 0

    @property
    def peak(self) -> tuple[int, int, int]:
        """Value, low and high end of the most that training holds, be it an update or scoring."""
        scoring = (self.scoring, *(round(self.scoring * share) for share in SCORING))
        low, high = max(self.low, scoring[1]), max(self.high, scoring[2])
        return max(self.value, self.scoring), low, high


class GpuFit(Frozen):
    """Whether the training fits a GPU. `high_bytes` is the upper end as declared; `told` is the answer in one line.

    `largest_rows` are the most rows a forward pass that are known to fit, None where not even one is; `ways` what makes
    the declared batch fit where it does not.
    """

    sku: str
    gpu_memory_gb: float
    fits: bool
    high_bytes: int
    largest_rows: int | None
    ways: tuple[str, ...] = ()
    told: str


# The rule of 40 GB a billion parameters. Told beside the forecast, since readers know it; it decides nothing.
RULE_BYTES = 40


def step_in_words(step: MemoryForecast) -> str:
    """The update's peak, its kinds from the largest on, and the common rule beside it."""
    kinds = sorted(((size, kind) for kind, size in step.kinds.items() if size), reverse=True)
    parts = ", ".join(f"{kind} {_megabytes(size)}" for size, kind in kinds)
    rule = _megabytes(RULE_BYTES * step.parameter_count)
    scoring = f"scoring the validation split holds more: {_megabytes(step.scoring)}; " * (step.scoring > step.value)
    return scoring + (
        f"an update of {step.rows} rows a forward pass in {step.precision} holds {_megabytes(step.value)} "
        f"({parts or step.source}); 40 GB a billion parameters would be {rule}"
    )


def _megabytes(size: int) -> str:
    if size < 1e6:
        return f"{size / 1e3:.0f} kB" if size >= 1e4 else f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"
