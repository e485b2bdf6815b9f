"""What was forecast against what happened: one reckoning for the report, MLflow and Dagster."""

from __future__ import annotations

from collections.abc import Sequence

from trainworthy.lifecycle.cost.duration import HIGH, LOW, measured_step
from trainworthy.lifecycle.protocol.records import STAGES, Forecast, PreflightReport, StageReport
from trainworthy.lifecycle.spec.frozen import Frozen


class Reckoning(Frozen):
    """A forecast and what happened; `actual` is None until it is known, `forecast` if there was none.

    `why_not` says why what happened cannot be held against the forecast.
    """

    name: str
    forecast: Forecast | None
    actual: float | None
    why_not: str = ""

    @property
    def error(self) -> float | None:
        """How far what happened lay above the forecast, as a share of it; below is negative."""
        if self.forecast is None or self.actual is None or self.forecast.value <= 0:
            return None
        return self.actual / self.forecast.value - 1

    @property
    def inside(self) -> bool | None:
        """True if what happened lies in the forecast's interval."""
        if self.forecast is None or self.actual is None:
            return None
        return self.forecast.low <= self.actual <= self.forecast.high


def reckonings(preflight: PreflightReport, stages: Sequence[StageReport]) -> tuple[Reckoning, ...]:
    """Memory, seconds, an update's seconds and cost by preflight, full's validation loss by the pilot's curve.

    Memory's peak is that of the stages there are. Seconds and cost were forecast of all updates of all three stages,
    each in one go; an update's seconds can be told of any training.
    """
    why_not = _not_whole(stages) or _by_others(preflight, stages)
    peak = max((stage.metrics.get("peak_memory_bytes", 0.0) for stage in stages), default=0.0) or None
    wall = None if why_not else sum(stage.cost.wall_seconds for stage in stages)
    spent = None if why_not else sum(stage.cost.usd for stage in stages)
    return (
        Reckoning(name="memory", forecast=preflight.memory_bytes, actual=peak),
        Reckoning(name="seconds", forecast=preflight.seconds, actual=wall, why_not=why_not),
        *filter(None, [_of_an_update(preflight, stages)]),
        Reckoning(name="cost", forecast=preflight.cost_usd, actual=spent, why_not=why_not),
        *filter(None, [reached_by_full(stages)]),
    )


def _not_whole(stages: Sequence[StageReport]) -> str:
    """Why the stages' seconds are not those of the whole training; empty if they are."""
    if len(stages) < len(STAGES):
        return "training did not finish"
    if _interrupted(stages):
        return "a stage was interrupted, and only its last attempt is on record"
    ended = [f"{stage.kind} {stage.left_out_steps:,} updates" for stage in stages if stage.left_out_steps]
    return f"ended before the planned updates: {', '.join(ended)}" if ended else ""


def _of_an_update(preflight: PreflightReport, stages: Sequence[StageReport]) -> Reckoning | None:
    """Seconds of an update, rows and computing, on average; None without both figures."""
    step = measured_step(preflight.checks)
    measured = [stage for stage in stages if stage.seconds is not None and stage.first_step is not None]
    updates = sum(stage.steps - (stage.first_step or 0) for stage in measured)
    spent = sum(stage.seconds.data + stage.seconds.compute for stage in measured if stage.seconds is not None)
    if step is None or not updates:
        return None
    forecast = Forecast(
        name="update_seconds", unit="seconds", value=step.seconds, low=step.seconds * LOW, high=step.seconds * HIGH
    )
    return Reckoning(name="update_seconds", forecast=forecast, actual=spent / updates)


def reached_by_full(stages: Sequence[StageReport]) -> Reckoning | None:
    """The validation loss of full; None if the pilot could not say what to expect."""
    by_kind = {stage.kind: stage for stage in stages}
    pilot, full = by_kind.get("pilot"), by_kind.get("full")
    if pilot is None or pilot.data_curve is None or pilot.data_curve.full_loss is None:
        return None
    reached = full.metrics.get("val_loss") if full is not None else None
    return Reckoning(name="validation_loss", forecast=pilot.data_curve.full_loss, actual=reached)


def _by_others(preflight: PreflightReport, stages: Sequence[StageReport]) -> str:
    """That stages were trained by another number of processes than was forecast; empty if not, or nobody knows."""
    details = (row for check in preflight.checks if check.name == "memory_forecast" for row in check.details)
    # Beside that of all nodes the fewest may be told, of which neither time nor cost was forecast.
    forecast = max((row["processes"] for row in details if "processes" in row), default=None)
    made = sorted({part.processes for stage in stages for part in stage.made_by} - {forecast})
    if forecast is None or not made:
        return ""
    return f"trained by {' and '.join(map(str, made))} processes, and forecast of {forecast}"


def _interrupted(stages: Sequence[StageReport]) -> bool:
    """True if a stage went on from its own checkpoint, or an attempt of it ended before its end.

    In mode continue each goes on where the last one ended.
    """
    starts = (0, *(stage.steps for stage in stages))
    if any(stage.attempts for stage in stages):
        return True
    if any(trained.resumed_from_step for stage in stages for trained in stage.trained if trained.seed != stage.seed):
        return True
    return any(stage.resumed_from_step not in (0, start) for stage, start in zip(stages, starts, strict=False))


def error_figures(preflight: PreflightReport, stages: Sequence[StageReport]) -> dict[str, float]:
    """`forecast_<name>_error` of what is known: 0.1 where it took a tenth more than forecast."""
    known = {reckoning.name: reckoning.error for reckoning in reckonings(preflight, stages)}
    return {f"forecast_{name}_error": error for name, error in known.items() if error is not None}
