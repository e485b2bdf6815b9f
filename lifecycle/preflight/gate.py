"""Preflight's answer as checks."""

from __future__ import annotations

from lifecycle.checks import CheckResult, at_most
from lifecycle.cost.prices import Sku
from lifecycle.jobs import PreflightResult, Trial
from lifecycle.leakage.finding import leakage_check
from lifecycle.records import Forecast

CHECKS = ("one_batch", "overfit_ten_batches", "leakage_in_training", "memory_forecast", "cost_forecast")


def cost_forecast(seconds: Forecast | None, sku: Sku) -> Forecast | None:
    """USD of the three stages at the SKU's price."""
    if seconds is None:
        return None
    rate = sku.usd_per_hour / 3600
    return Forecast(
        name="cost", unit="usd", value=seconds.value * rate, low=seconds.low * rate, high=seconds.high * rate
    )


def preflight_checks(
    result: PreflightResult, cost: Forecast | None, memory_limit_bytes: int, budget_usd: float
) -> tuple[CheckResult, ...]:
    """One check a trial; the upper end of a forecast decides. What was not measured is insufficient and stops."""
    return (
        _trial("one_batch", result.one_batch, result),
        _trial("overfit_ten_batches", result.overfit, result),
        _leakage(result),
        _forecast(
            "memory_forecast",
            result.memory,
            memory_limit_bytes,
            "a smaller batch, a smaller model, or a machine with more memory (compute.sku in prices.yaml)",
            result,
        ),
        _forecast(
            "cost_forecast",
            cost,
            budget_usd,
            "raise budget.run_usd, train for fewer epochs, or choose a cheaper SKU",
            result,
        ),
    )


def _trial(name: str, trial: Trial | None, result: PreflightResult) -> CheckResult:
    if trial is None:
        return _unmeasured(name, result)
    return CheckResult(
        name=name,
        status="pass" if trial.worked else "fail",
        device=result.device,
        observed=trial.observed,
        threshold=trial.threshold,
        evidence=trial.evidence,
        fix=trial.fix,
    )


def _leakage(result: PreflightResult) -> CheckResult:
    if not result.leakage:
        return _unmeasured("leakage_in_training", result)
    return leakage_check("leakage_in_training", result.leakage, result.device)


def _forecast(name: str, forecast: Forecast | None, limit: float, fix: str, result: PreflightResult) -> CheckResult:
    if forecast is None:
        return _unmeasured(name, result)
    value, low, high = (_shown(figure, forecast.unit) for figure in (forecast.value, forecast.low, forecast.high))
    evidence = f"forecast {value}, between {low} and {high}; the limit is {_shown(limit, forecast.unit)}"
    check = at_most(name, forecast.high, limit, evidence=evidence)
    return check if check.status == "pass" else check.model_copy(update={"fix": fix})


def _shown(value: float, unit: str) -> str:
    return f"{value / 2**30:.2f} GiB" if unit == "bytes" else f"{value:.4f} {unit.upper()}"


def _unmeasured(name: str, result: PreflightResult) -> CheckResult:
    fix = "mend what the other checks found, then run again"
    return CheckResult(name=name, status="insufficient", required=True, evidence=result.untried, fix=fix)
