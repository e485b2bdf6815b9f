"""How long an update takes, and the whole training: what was measured, and the forecast that is made of it.

What the stages after one would cost, by preflight's forecast and their share of the updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime
from trainworthy.lifecycle.protocol.records import STAGES, Forecast, PreflightReport, Step


def forecast_of(whole: RunTime) -> Forecast:
    """The whole with its interval."""
    value = whole.seconds
    return Forecast(name="seconds", unit="seconds", value=value, low=value * LOW, high=value * HIGH)


def measured_step(checks: Iterable[CheckResult]) -> StepTime | None:
    """The update's time that recorded checks of preflight hold; None if there is none."""
    rows = (row for check in checks if check.name == "cost_forecast" for row in check.details)
    return next((StepTime.model_validate(row) for row in rows if "rows_seconds" in row), None)


def forecast_time(checks: Iterable[CheckResult]) -> RunTime | None:
    """The run's time by part that recorded checks of preflight hold; None if there is none."""
    rows = (row for check in checks if check.name == "cost_forecast" for row in check.details)
    return next((RunTime.model_validate(row) for row in rows if "start_seconds" in row), None)


def in_words(whole: RunTime, step: StepTime) -> str:
    """Where the time goes, and the energy where it could be measured."""
    parts = {
        "starts": whole.start_seconds, "preparing": whole.prepare_seconds, "updates": whole.train_seconds,
        **({"evaluations": whole.evaluate_seconds} if whole.evaluate_seconds else {}),
        "checkpoints": whole.checkpoint_seconds, "validating and exporting": whole.finish_seconds,
    }  # fmt: skip
    by_part = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    if step.joules is None or step.joules < 0:
        energy = "energy could not be measured here"
    else:
        energy = f"about {step.joules * whole.updates / 3.6e6:.4f} kWh for the updates"
    other_work = f"; other work kept {step.others_busy:.1f} cores busy meanwhile" if step.others_busy > 0.25 else ""
    return f"{whole.updates:,} updates of {step.seconds * 1e3:.2f} ms{other_work}; {by_part}; {energy}"


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


# Ends of the interval, as shares of the forecast: docs/benchmarks.md has the errors that they were chosen by.
LOW, HIGH = 0.6, 2.0
