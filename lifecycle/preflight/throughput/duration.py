"""How long an update takes, and the whole training: what was measured, and the forecast that is made of it."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.checks import CheckResult
from lifecycle.cost.interval import HIGH, LOW
from lifecycle.records import Forecast, Frozen

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

    def forecast(self) -> Forecast:
        """The whole with its interval."""
        value = self.seconds
        return Forecast(name="seconds", unit="seconds", value=value, low=value * LOW, high=value * HIGH)


def measured_step(checks: Iterable[CheckResult]) -> StepTime | None:
    """The update's time that recorded checks of preflight hold; None if there is none."""
    told = (row for check in checks if check.name == "cost_forecast" for row in check.details)
    return next((StepTime.model_validate(row) for row in told if "rows_seconds" in row), None)


def in_words(whole: RunTime, step: StepTime) -> str:
    """Where the time goes, and the energy where it could be measured."""
    parts = {
        "starts": whole.start_seconds, "preparing": whole.prepare_seconds, "updates": whole.train_seconds,
        **({"evaluations": whole.evaluate_seconds} if whole.evaluate_seconds else {}),
        "checkpoints": whole.checkpoint_seconds, "validating and exporting": whole.finish_seconds,
    }  # fmt: skip
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    if step.joules is None or step.joules < 0:
        energy = "energy could not be measured here"
    else:
        energy = f"about {step.joules * whole.updates / 3.6e6:.4f} kWh for the updates"
    others = f"; other work kept {step.others_busy:.1f} cores busy meanwhile" if step.others_busy > 0.25 else ""
    return f"{whole.updates:,} updates of {step.seconds * 1e3:.2f} ms{others}; {told}; {energy}"
