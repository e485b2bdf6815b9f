"""All that the decision is made from, as one frozen value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from trainworthy.lifecycle.evaluation.calibration import CALIBRATION_ERROR
from trainworthy.lifecycle.promotion.finding import Window
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.protocol.figures import (
    BehaviourResult,
    Calibration,
    Comparison,
    Disparity,
    Estimate,
    Metric,
    SliceResult,
)
from trainworthy.lifecycle.protocol.records import Control
from trainworthy.lifecycle.protocol.suite import ChangedLimit
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, Guardrail, OnUnderpowered
from trainworthy.lifecycle.spec.frozen import Frozen

CONTROLS = ("dataset", "benchmark", "cost", "reproducibility", "deployment")


class GuardrailResult(Frozen):
    """A guardrail with what was measured for it; `estimate` is None if nothing was, and `reason` says why if known.

    `fix` is what would help then. `measured` is what the estimate is of: the guardrail's metric, or its debiased form.
    """

    guardrail: Guardrail
    estimate: Estimate | None
    reason: str = ""
    fix: str = "evaluate again"
    debiased: bool = False

    @property
    def measured(self) -> str:
        return f"debiased_{self.guardrail.metric}" if self.debiased else self.guardrail.metric


class PromotionEvidence(Frozen):
    """What is known about a candidate.

    `baselines` are its paired gains over the baselines, on the primary metric, `baseline_gains` the baselines' own
    gains over the prior; `words` is what their kind of task calls them. `champion` names the registered champion, if
    there is one, and `champion_comparison` is the gain over it, None if it could not be scored, for the reason
    `champion_error`. `slices` are those that decide. `difference_limits` are those of rates between values of
    `protected_columns`, which `disparities` measure, and `on_underpowered_difference` what too few rows allow;
    `behaviour_tests` are declared, and `behaviour` measures them.
    `margin` is in the metric's unit. `rolled_back` is the rollback that took this very model off, if one did and it was
    not made champion since. `insufficient_checks` are the names of checks of earlier steps that could not be measured,
    `open_questions` sentences of those that wait for a person's answer. `accepted` tells which inputs were accepted
    without a review, and why; empty if none were.
    `window` is that of the benchmark, None where its groups have no order in time.
    """

    words: Words = Words()
    metric: str
    margin: float = Field(gt=0, allow_inf_nan=False)
    purpose: Literal["improve", "refresh"]
    first_model: bool
    champion: str | None
    baselines: tuple[Comparison, ...]
    baseline_gains: tuple[Comparison, ...] = ()
    champion_comparison: Comparison | None
    champion_error: str = ""
    guardrails: tuple[GuardrailResult, ...]
    slices: tuple[SliceResult, ...] = ()
    changed_limits: tuple[ChangedLimit, ...] = ()
    disparities: tuple[Disparity, ...] = ()
    difference_limits: dict[str, float] = Field(default_factory=dict)
    protected_columns: tuple[str, ...] = ()
    on_underpowered_difference: OnUnderpowered = "shadow"
    behaviour: tuple[BehaviourResult, ...] = ()
    behaviour_tests: tuple[BehaviourSpec, ...] = ()
    controls: tuple[Control, ...]
    rolled_back: RolledBack | None = None
    insufficient_checks: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    accepted: str = ""
    window: Window | None = None

    @model_validator(mode="after")
    def _limits_have_columns(self) -> PromotionEvidence:
        if self.difference_limits and not self.protected_columns:
            raise ValueError("limits of differences need protected columns")
        return self


def guardrail_results(
    guardrails: Iterable[Guardrail],
    metrics: Iterable[Metric],
    model: str,
    calibrations: Iterable[Calibration] = (),
    undefined: Mapping[str, str] = MappingProxyType({}),
) -> tuple[GuardrailResult, ...]:
    """Each guardrail with the model's estimate over all benchmark rows.

    One on the calibration error is judged by that without what chance adds, of the claim that is farthest off: the
    plain one is never 0, and near calibration its interval does not hold the truth (docs/decisions/0063). All claims
    have to keep it, so one whose error was not measured leaves it open. Without claims the plain one stands.
    `undefined` says by metric why it has no value.
    """
    own = [calibration for calibration in calibrations if calibration.model == model]
    unmeasured = next((calibration for calibration in own if calibration.error is None), None)
    reason = "" if unmeasured is None else "; ".join((f"of {unmeasured.claim}", *unmeasured.reasons))
    estimates: dict[str, Estimate | None] = {
        m.metric: m.estimate for m in metrics if m.model == model and m.slice is None
    }
    if own:
        debiased = [calibration.error for calibration in own if calibration.error is not None]
        estimates[CALIBRATION_ERROR] = None if unmeasured else max(debiased, key=lambda error: error.high)
    return tuple(
        GuardrailResult(
            guardrail=guardrail,
            estimate=estimates.get(guardrail.metric),
            reason=reason if guardrail.metric == CALIBRATION_ERROR else undefined.get(guardrail.metric, ""),
            fix=_fix(guardrail, undefined),
            debiased=bool(own) and guardrail.metric == CALIBRATION_ERROR,
        )
        for guardrail in guardrails
    )


def _fix(guardrail: Guardrail, undefined: Mapping[str, str]) -> str:
    """Evaluating again gives the same rows and answers, so it is no help where the metric is not defined of them."""
    if guardrail.metric not in undefined:
        return "evaluate again"
    if guardrail.metric.partition("[")[0] in ("precision", "f1"):
        decide = "decide from a lower threshold (benchmark.decision), or by a capacity or costs"
        other = "bound recall or a metric of probabilities in its place"
        return f"{decide}, {other}" if guardrail.metric in ("precision", "f1") else other
    return "take more rows of what it counts, or bound another metric"


def usable(estimate: Estimate | None) -> bool:
    """True if the estimate is there, finite and in order. Anything else is no evidence."""
    if estimate is None or not all(map(math.isfinite, (estimate.value, estimate.low, estimate.high))):
        return False
    return estimate.low <= estimate.value <= estimate.high
