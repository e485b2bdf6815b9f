"""What preflight forecast against what the three stages used: one reckoning for the report, MLflow and Dagster."""

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
    """Memory, seconds and cost. Memory's peak is that of the stages there are.

    The other two need all three stages, each in one go: of an interrupted one only the last attempt is on its record.
    """
    whole = len(stages) == len(STAGES) and not _interrupted(stages)
    peak = max((stage.metrics.get("peak_memory_bytes", 0.0) for stage in stages), default=0.0) or None
    wall = sum(stage.cost.wall_seconds for stage in stages) if whole else None
    spent = sum(stage.cost.usd for stage in stages) if whole else None
    return (
        Reckoning(name="memory", forecast=preflight.memory_bytes, actual=peak),
        Reckoning(name="seconds", forecast=preflight.seconds, actual=wall),
        Reckoning(name="cost", forecast=preflight.cost_usd, actual=spent),
    )


def _interrupted(stages: Sequence[StageReport]) -> bool:
    """True if a stage ended before its end or went on from its own checkpoint.

    In mode continue each goes on where the last one ended.
    """
    starts = (0, *(stage.steps for stage in stages))
    if any(stage.attempts for stage in stages):
        return True
    return any(stage.resumed_from_step not in (0, start) for stage, start in zip(stages, starts, strict=False))


def error_figures(preflight: PreflightReport, stages: Sequence[StageReport]) -> dict[str, float]:
    """`forecast_<name>_error` of what is known: 0.1 where it took a tenth more than forecast."""
    known = {one.name: one.error for one in reckonings(preflight, stages)}
    return {f"forecast_{name}_error": error for name, error in known.items() if error is not None}
