"""The data-learning curve: what more rows may buy, before they are paid for.

Validation loss falls with the logarithm of the rows, and less with each doubling, once a network has left the start:
all curves of the form `a + b * rows**-c` do. So the next doubling gains at most what a doubling gained on average
between the last two stages, and at least nothing. Two or three points tell no more than that: how soon the curve
becomes flat would need more of them. A network that at the earlier stage knew no more than the prior has not
left the start; there the bound does not hold, and nothing is said.

Losses are in the unit of the kind of task's own loss (Kind.words), which every Forecast of one names.

Noise is the spread over seeds, each with rows, weights and order of its own. The earlier stage has one training, whose
spread is taken to grow with the square root of the ratio of the rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from trainworthy.lifecycle.cost.duration import HIGH, LOW
from trainworthy.lifecycle.gates.references_check import TRAINED_BEFORE
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import DataCurve, Forecast
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.wording import figures

# With fewer, the t quantile is 12.7 and the interval says nothing.
LEAST_SEEDS = 3
_QUANTILE = 0.975


class Point(Frozen):
    """A stage: its rows, the validation losses of its seeds, and the loss of the prior."""

    rows: int
    losses: tuple[float, ...]
    prior_loss: float

    @property
    def loss(self) -> float:
        return statistics.mean(self.losses)


def point_of(rows: int, metrics: Mapping[str, float], trained: Sequence[SeedResult]) -> Point | None:
    """A stage as a point of the curve, None if it was not validated."""
    loss, prior = metrics.get("val_loss", math.nan), metrics.get("val_loss_of_prior", math.nan)
    losses = tuple(seed_result.val_loss for seed_result in trained if seed_result.val_loss is not None) or (loss,)
    return Point(rows=rows, losses=losses, prior_loss=prior) if math.isfinite(sum(losses) + prior) else None


def curve_at_pilot(
    smoke: Point | None, pilot: Point | None, full_rows: int, usd: Forecast | None,
    mode: Literal["restart", "continue"], said: Words,
) -> DataCurve:  # fmt: skip
    """What a doubling of the pilot's rows gains, and what full is expected to reach, for `usd`."""
    gain, why_not = _gain(smoke, pilot, mode, said)
    if gain is None or pilot is None:
        return DataCurve(told=f"whether more rows would help is unknown: {why_not}", usd=usd)
    doublings, most = math.log2(full_rows / pilot.rows), gain.high
    alone = _reach(pilot.losses)
    # No kind of task has a loss below 0, whichever way a curve points.
    low, high = max(0.0, pilot.loss - doublings * most - alone), pilot.loss + alone
    full_loss = Forecast(name="full_loss", unit=said.unit, value=(low + high) / 2, low=low, high=high)
    price = "a cost that was not forecast" if usd is None else f"{usd.low:.4f} to {usd.high:.4f} USD"
    least, best, lowest, highest = figures(gain.low, gain.high, low, high)
    evidence = (
        f"doubling the rows lowers the validation loss by {least} to {best}; full has "
        f"{full_rows / pilot.rows:.1f} times the rows and should reach {lowest} to {highest}, for {price}"
    )
    return DataCurve(told=evidence, gain=gain, full_loss=full_loss, usd=usd)


def curve_after_full(
    pilot: Point | None, full: Point | None, training_usd: float, mode: Literal["restart", "continue"], said: Words
) -> DataCurve:
    """What twice the rows of full would gain; one training of full cost `training_usd`."""
    gain, why_not = _gain(pilot, full, mode, said)
    value = 2 * training_usd
    usd = Forecast(name="twice_the_rows", unit="usd", value=value, low=LOW * value, high=HIGH * value)
    if gain is None:
        return DataCurve(told=f"whether more rows would help is unknown: {why_not}", usd=usd)
    least, most = figures(gain.low, gain.high)
    evidence = (
        f"twice the rows would lower the validation loss by {least} to {most}, for {usd.low:.4f} to {usd.high:.4f} USD"
    )
    return DataCurve(told=evidence, gain=gain, usd=usd)


def data_curve_check(curve: DataCurve, pilot: Point | None, margin: float | None) -> CheckResult:
    """Warns where even the optimistic end of what full adds lies below `margin`; an extrapolation never stops a run.

    `margin` is the use case's own, if it is one of the loss that the stages measure; else None.
    """
    name, severity = "data_curve", "warning"
    if curve.full_loss is None or pilot is None:
        return CheckResult(name=name, status="not_applicable", severity=severity, evidence=curve.told)
    most = pilot.loss - curve.full_loss.low
    if margin is None or most >= margin:
        return CheckResult(name=name, status="pass", severity=severity, observed=most, evidence=curve.told)
    return CheckResult(
        name=name, status="fail", severity=severity, observed=most, threshold=margin,
        evidence=f"{curve.told}; that is at most {figures(most)[0]} better than the pilot, less than the margin that "
        "counts",
        fix=fix_of("data_curve"),
    )  # fmt: skip


def _gain(before: Point | None, last: Point | None, mode: str, said: Words) -> tuple[Forecast | None, str]:
    """By how much the next doubling lowers the loss, or why it cannot be said."""
    if mode == "continue":
        return None, "in mode continue the stages are pauses of one schedule, not trainings on fewer rows"
    if before is None or last is None:
        return None, "a stage was not validated"
    if last.rows < 2 * before.rows:
        return None, f"{before.rows:,} and {last.rows:,} rows lie too near each other"
    # The larger stage's own seeds, else the smaller one's, whose spread is the greater.
    repeated = last if len(last.losses) >= LEAST_SEEDS else before
    if len(repeated.losses) < LEAST_SEEDS:
        return None, f"fewer than {LEAST_SEEDS} seeds were trained; set training.pilot_seeds: {LEAST_SEEDS} to find out"
    if not before.loss < TRAINED_BEFORE * before.prior_loss:
        loss, prior = figures(before.loss, before.prior_loss)
        return None, f"on {before.rows:,} rows the network knew no more than the {said.prior} ({loss} against {prior})"
    doublings = math.log2(last.rows / before.rows)
    variance = sum(_variance(repeated, point) for point in (before, last))
    most = (before.loss - last.loss + _t(len(repeated.losses)) * math.sqrt(variance)) / doublings
    high = max(0.0, most)
    return Forecast(name="doubling_gain", unit=said.unit, value=high / 2, low=0.0, high=high), ""


def _variance(repeated: Point, point: Point) -> float:
    """Of the point's mean loss, from the stage whose spread was measured; more rows never count as quieter."""
    variance = statistics.variance(repeated.losses) * max(1.0, repeated.rows / point.rows)
    return variance / len(point.losses)


def _reach(losses: Sequence[float]) -> float:
    """Half the width of the 95 % interval of one further training."""
    return _t(len(losses)) * statistics.stdev(losses) * math.sqrt(1 + 1 / len(losses))


def _t(count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, _QUANTILE))
