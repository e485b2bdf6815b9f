"""By which metric, margin and guardrails a drafted use case is judged, from the kind of its task and its label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainworthy.pipeline.scaffold.target import FoundTarget

if TYPE_CHECKING:
    import pandas as pd

# Of a logarithmic loss, in nats: on flights a network of half the width loses as much.
MARGIN_NATS = 0.005
# Of the overlap of masks and answers, from 0 to 1.
MARGIN_IOU = 0.01
# Of bits a byte.
MARGIN_BITS = 0.02
# Of a number, in standard deviations of the label: 0.01 is two parts in a hundred of an R squared of 0.
MARGIN_SPREADS = 0.01
# A prediction that is off on average by so much of a standard deviation is off for everybody.
BIAS_SPREADS = 0.2
# By how much fewer labels may lie inside of an interval, or on a quantile's own side, than declared.
COVERAGE = 0.1


@dataclass(frozen=True)
class Judged:
    """As benchmark.primary and benchmark.guardrails of use_case.yaml have it."""

    primary: dict[str, Any]
    guardrails: list[dict[str, Any]]


def judged_by(target: FoundTarget, rows: pd.DataFrame) -> Judged:
    """The drafted metrics; those of numbers are in the label's unit."""
    if target.task.kind == "segmentation":
        return Judged({"metric": "mean_iou", "margin": MARGIN_IOU}, [{"metric": "calibration_error", "at_most": 0.05}])
    if target.task.kind == "language_model":
        primary = {"metric": "bits_per_byte", "margin": MARGIN_BITS}
        return Judged(primary, [{"metric": "calibration_error", "at_most": 0.05}])
    if target.task.kind != "regression":
        return Judged({"metric": "log_loss", "margin": MARGIN_NATS}, [{"metric": "calibration_error", "at_most": 0.05}])
    spread, quantiles = _spread(target, rows), target.task.quantiles
    margin = rounded(MARGIN_SPREADS * spread)
    if quantiles:
        return Judged({"metric": "pinball", "margin": margin}, [_coverage(quantiles)])
    bias = {"metric": "bias", "at_most": rounded(BIAS_SPREADS * spread)}
    return Judged({"metric": "rmse", "margin": margin}, [bias])


def unit_of(target: FoundTarget, rows: pd.DataFrame) -> float | None:
    """The spread of a number to one digit, in which its network's loss is counted; None for other kinds."""
    return rounded(_spread(target, rows)) if target.task.kind == "regression" else None


def _spread(target: FoundTarget, rows: pd.DataFrame) -> float:
    return float(rows[target.column].std())


def _coverage(quantiles: tuple[float, ...]) -> dict[str, Any]:
    """What has to lie between the outer quantiles; of one quantile, on its wider side."""
    if len(quantiles) > 1:
        inside = quantiles[-1] - quantiles[0]
        return {"metric": "interval_coverage", "at_least": round(max(inside - COVERAGE, inside / 2), 3)}
    level = max(quantiles)
    name = f"coverage[{level:g}]"
    if level < 0.5:
        return {"metric": name, "at_most": round(level + COVERAGE, 3)}
    return {"metric": name, "at_least": round(level - COVERAGE, 3)}


def rounded(value: float) -> float | int:
    """To one digit; whole where that is exact."""
    found = round(value, -math.floor(math.log10(value)))
    return int(found) if found == int(found) else found
