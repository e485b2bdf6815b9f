"""How long an update takes, and the whole training: what was measured, and the forecast that is made of it."""

from __future__ import annotations

from collections.abc import Iterable

from trainworthy.lifecycle.cost.interval import HIGH, LOW
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime
from trainworthy.lifecycle.protocol.records import Forecast


def forecast_of(whole: RunTime) -> Forecast:
    """The whole with its interval."""
    value = whole.seconds
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
