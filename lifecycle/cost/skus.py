"""What a training would cost on every machine of the price table.

Measured is this machine alone. Of another one it is told what its updates take at least about: a kernel does not start
in less than KERNEL_SECONDS, and nothing computes faster than the data sheet's largest figure. Starts, preparation and
validation count nothing there, since what they take was measured here. So it can be told that another machine is
probably not worth it, and never that it is: that takes a run there. Where several machines train together, each row is
that of as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from trainworthy.lifecycle.cost.checkpoint_interval import interruptions, interval_seconds
from trainworthy.lifecycle.cost.duration import forecast_of
from trainworthy.lifecycle.cost.prices import Prices, Sku
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime
from trainworthy.lifecycle.spec.frozen import Frozen

# Launching a kernel takes 3 to 10 microseconds on a CUDA device, whatever it computes (NVIDIA's own figures).
KERNEL_SECONDS = 3e-6
# Below this share of its cores a machine is not used up, and a second one is no help.
USED_UP = 0.6


class SkuCost(Frozen):
    """Cost of the training on a machine; `seconds_high` and `usd_high` are None where nothing was measured.

    `spot_usd_low` and `spot_usd_high` count interruptions; None if the table has no spot price. `told` says what is
    missing or old.
    """

    sku: str
    measured: bool
    seconds_low: float
    seconds_high: float | None
    usd_low: float
    usd_high: float | None
    spot_usd_low: float | None = None
    spot_usd_high: float | None = None
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """A training as it was measured here: an update, the whole, and its forecast seconds; `nodes` machines make it."""

    step: StepTime
    whole: RunTime
    checkpoint_every_steps: int | None
    nodes: int = 1

    def checkpoint_seconds(self, sku: Sku) -> float:
        """How much of the training lies between two checkpoints on a spot machine."""
        if self.checkpoint_every_steps is not None:
            return self.checkpoint_every_steps * self.step.seconds
        machine = interruptions(True, sku.interruptions_per_hour, machines=self.nodes)
        return interval_seconds(self.step.checkpoint_seconds, self.step.write_seconds, machine)


def costs(work: Work, prices: Prices, here: str, today: date) -> tuple[SkuCost, ...]:
    """One row a machine: `here`, which was measured, first, then by the least that each may cost."""
    rows = [_cost(name, sku.times(work.nodes), work, name == here, today) for name, sku in prices.skus.items()]
    return tuple(sorted(rows, key=lambda row: (row.sku != here, row.usd_low)))


def _cost(name: str, sku: Sku, work: Work, measured: bool, today: date) -> SkuCost:
    notes = [f"{work.nodes} machines"] if work.nodes > 1 else []
    notes += [sku.stale(today)] if sku.stale(today) else []
    if measured:
        forecast = forecast_of(work.whole)
        low, high = forecast.low, forecast.high
    else:
        low, high = work.whole.updates * fastest_update(work, sku), None
        notes.append("at least about this, for its updates alone: nothing was measured there")
    spot = None if sku.spot_usd_per_hour is None else sku.spot_usd_per_hour / 3600
    if spot is None:
        notes.append("no spot price")
    elif sku.interruptions_per_hour is None:
        notes.append("no rate of interruptions: counted as none")
    lost = _lost(sku, work)
    rate = sku.usd_per_hour / 3600
    return SkuCost(
        sku=name, measured=measured, seconds_low=low, seconds_high=high, usd_low=low * rate,
        usd_high=None if high is None else high * rate,
        spot_usd_low=None if spot is None else low * spot * lost,
        spot_usd_high=None if spot is None or high is None else high * spot * lost,
        told=tuple(notes),
    )  # fmt: skip


def _lost(sku: Sku, work: Work) -> float:
    """By how much interruptions lengthen a training: each costs half a checkpoint's distance and a start."""
    per_second = work.nodes * (sku.interruptions_per_hour or 0.0) / 3600
    return 1 + per_second * (work.checkpoint_seconds(sku) / 2 + work.whole.start_seconds / work.whole.workers)


def fastest_update(work: Work, sku: Sku) -> float:
    """Seconds that an update of this work takes at least about on a machine."""
    # The larger one in float32, too: cuDNN may compute in TF32 unless it is told not to.
    peak = max(sku.tflops_fp32 or 0.0, sku.tflops_bf16 or 0.0)
    computing = work.step.flops / (peak * 1e12 * max(1, sku.gpus) * work.nodes) if peak else 0.0
    starting = work.step.operations * KERNEL_SECONDS if sku.gpus else 0.0
    return max(computing, starting)


def advice(rows: tuple[SkuCost, ...], step: StepTime) -> str:
    """Whether the machine that was measured, the first of the rows, is enough: in a sentence or two."""
    (here, *others), sentences = rows, []
    cheaper = [row for row in others if here.usd_high is not None and row.usd_low < here.usd_high]
    if here.usd_high is not None and others and not cheaper:
        sentences.append(f"{here.sku} is enough: no other machine of prices.yaml is likely to cost less")
    elif cheaper:
        names = ", ".join(f"{row.sku} (at least about {row.usd_low:.4f} USD)" for row in cheaper[:3])
        sentences.append(f"may cost less, which only a run there tells: {names}")
    if step.device == "cpu" and step.cores_busy + step.others_busy < USED_UP * step.cores:
        sentences.append(f"this machine is not yet used up: {step.cores_busy:.1f} of {step.cores} cores were busy")
    return "; ".join(sentences)
