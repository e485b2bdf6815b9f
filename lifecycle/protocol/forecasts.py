"""What preflight forecasts of memory and time, as it is told and kept."""

from __future__ import annotations

from typing import Literal

from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.training import Precision
from trainworthy.lifecycle.spec.use_case import Sharding

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
    All of this is one's of so many `processes`, which share out an update's rows; then `buckets` are among the kinds,
    the gradients that DistributedDataParallel holds once more, or with `sharding` the largest of the `blocks` that are
    whole at a time. They are on so many `nodes`, as many on each.
    """

    rows: int
    accumulate: int
    precision: Precision
    source: Source
    parameter_count: int
    kinds: dict[str, int]
    value: int
    low: int
    high: int
    scoring: int = 0
    processes: int = 1
    nodes: int = 1
    sharding: Sharding = "none"

    @property
    def peak(self) -> tuple[int, int, int]:
        """Value, low and high end of the most that a process holds, be it an update or scoring."""
        scoring = (self.scoring, *(round(self.scoring * share) for share in SCORING))
        low, high = max(self.low, scoring[1]), max(self.high, scoring[2])
        return max(self.value, self.scoring), low, high

    @property
    def together(self) -> tuple[int, int, int]:
        """The same of all processes of the first node: one alone scores, the others wait for it with all they hold."""
        other_processes, (value, low, high) = self.processes // self.nodes - 1, self.peak
        return (
            value + other_processes * self.value,
            low + other_processes * self.low,
            high + other_processes * self.high,
        )


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


# Cores; the system's own work and a person's is less.
OTHERS_BUSY = 0.5


class StepTime(Frozen):
    """Seconds of an update, and of its parts that are not computing.

    `rows_seconds` is what choosing the rows of a batch takes, or with `loaders` above 0 the wait for their batches;
    `augment_seconds` what changing them takes, `checkpoint_seconds` what an update waits for a checkpoint,
    `write_seconds` what passes beside the updates until it is on disk. `cores_busy` of `cores` is how many this process
    kept busy, `others_busy` how many other work did. `operations` counts what computes something in an update's forward
    and backward passes (no view, no allocation, not the optimizer), `flops` theirs in matrix products and convolutions.
    `joules` of the whole machine, None if it has no readable meter. `logging_seconds` is what telling an update takes:
    progress and metrics. `read_share` is the share of making tensors that is neither computing nor waiting for a core,
    which is reading files or a network; None where it cannot be told.
    `compile_seconds` is what a worker's first updates take longer with training.compile.
    """

    seconds: float
    rows_seconds: float
    augment_seconds: float
    checkpoint_seconds: float
    cores_busy: float
    others_busy: float
    cores: int
    loaders: int = 0
    flops: float
    operations: int
    joules: float | None
    device: str
    write_seconds: float = 0.0
    compile_seconds: float = 0.0
    logging_seconds: float = 0.0
    read_share: float | None = None

    @property
    def disturbed(self) -> bool:
        """True if other work had so much of the machine that these seconds may be its doing."""
        return self.others_busy > OTHERS_BUSY

    @property
    def waiting_seconds(self) -> float:
        """What of an update goes by while the network does not compute."""
        return self.rows_seconds + self.augment_seconds + self.logging_seconds

    @property
    def waiting(self) -> float:
        """The same as a share of the update."""
        return self.waiting_seconds / self.seconds


class RunTime(Frozen):
    """Wall seconds of the three stages by part, and the updates that they make.

    `start_seconds` are the starts of the `workers` until rows are read, `prepare_seconds` the features of the rows,
    `train_seconds` the updates, `evaluate_seconds` early stopping's looks at the validation split between them,
    `checkpoint_seconds` waiting for checkpoints, `finish_seconds` validation and export.
    """

    start_seconds: float
    prepare_seconds: float
    train_seconds: float
    checkpoint_seconds: float
    finish_seconds: float
    updates: int
    workers: int = 3
    evaluate_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.beside_seconds + self.train_seconds + self.evaluate_seconds + self.checkpoint_seconds

    @property
    def beside_seconds(self) -> float:
        """What does not grow with the updates."""
        return self.start_seconds + self.prepare_seconds + self.finish_seconds
