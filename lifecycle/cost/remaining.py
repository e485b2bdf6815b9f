"""What the stages after one would cost, by preflight's forecast and their share of the updates."""

from __future__ import annotations

from collections.abc import Mapping

from trainworthy.lifecycle.protocol.records import STAGES, Forecast, PreflightReport, Step


def remaining_cost(preflight: PreflightReport | None, updates: Mapping[str, int], stage: Step) -> Forecast | None:
    """USD of the stages after `stage`; None if nothing was forecast. `updates` are those of each stage.

    A stage's starts, preparation and validation are counted by its updates as well.
    """
    if stage == STAGES[-1]:
        return Forecast(name="remaining_cost", unit="usd", value=0.0, low=0.0, high=0.0)
    if preflight is None or preflight.cost_usd is None:
        return None
    later = sum(updates[name] for name in STAGES[STAGES.index(stage) + 1 :])
    share, whole = later / sum(updates.values()), preflight.cost_usd
    return Forecast(
        name="remaining_cost", unit="usd", value=whole.value * share, low=whole.low * share, high=whole.high * share
    )
