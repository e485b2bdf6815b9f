"""What was forecast against what happened: one reckoning for the report, MLflow and Dagster."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle.records import STAGES, Forecast, Frozen, PreflightReport, StageReport


class Reckoning(Frozen):
    """A forecast and what happened; `actual` is None until it is known, `forecast` if there was none."""

    name: str
    forecast: Forecast | None
    actual: float | None

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
    """Memory, seconds and cost by preflight, full's validation loss by the pilot's data-learning curve.

    Memory's peak is that of the stages there are. Seconds and cost need all three stages, each in one go: of an
    interrupted one only the last attempt is on its record.
    """
    whole = len(stages) == len(STAGES) and not _interrupted(stages)
    peak = max((stage.metrics.get("peak_memory_bytes", 0.0) for stage in stages), default=0.0) or None
    wall = sum(stage.cost.wall_seconds for stage in stages) if whole else None
    spent = sum(stage.cost.usd for stage in stages) if whole else None
    return (
        Reckoning(name="memory", forecast=preflight.memory_bytes, actual=peak),
        Reckoning(name="seconds", forecast=preflight.seconds, actual=wall),
        Reckoning(name="cost", forecast=preflight.cost_usd, actual=spent),
        *filter(None, [reached_by_full(stages)]),
    )


def reached_by_full(stages: Sequence[StageReport]) -> Reckoning | None:
    """The validation loss of full; None if the pilot could not say what to expect."""
    by_kind = {stage.kind: stage for stage in stages}
    pilot, full = by_kind.get("pilot"), by_kind.get("full")
    if pilot is None or pilot.data_curve is None or pilot.data_curve.full_loss is None:
        return None
    reached = full.metrics.get("val_loss") if full is not None else None
    return Reckoning(name="validation_loss", forecast=pilot.data_curve.full_loss, actual=reached)


def _interrupted(stages: Sequence[StageReport]) -> bool:
    """True if a stage ended before its end or went on from its own checkpoint.

    In mode continue each goes on where the last one ended.
    """
    starts = (0, *(stage.steps for stage in stages))
    if any(stage.attempts for stage in stages):
        return True
    if any(one.resumed_from_step for stage in stages for one in stage.trained if one.seed != stage.seed):
        return True
    return any(stage.resumed_from_step not in (0, start) for stage, start in zip(stages, starts, strict=False))


def error_figures(preflight: PreflightReport, stages: Sequence[StageReport]) -> dict[str, float]:
    """`forecast_<name>_error` of what is known: 0.1 where it took a tenth more than forecast."""
    known = {one.name: one.error for one in reckonings(preflight, stages)}
    return {f"forecast_{name}_error": error for name, error in known.items() if error is not None}
