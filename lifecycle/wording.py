"""How names and numbers are said, in verdicts, reports and on the terminal alike."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

_METRICS = {
    "auc": "AUC", "brier": "Brier score", "f1": "F1", "macro_f1": "macro F1", "micro_f1": "micro F1",
    "macro_auc": "macro AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²", "pinball": "pinball loss",
    "iou": "IoU", "mean_iou": "mean IoU", "mean_iou_per_picture": "mean IoU per picture",
    "dice": "Dice", "dice_per_picture": "Dice per picture",
}  # fmt: skip
# A metric of one class or quantile: `recall[late]`, `coverage[0.9]`.
_OF_PART = re.compile(r"(\w+)\[(.+)\]")
_QUANTILES = ("pinball", "coverage")
# Errors from here on are those of numbers in a unit, such as minutes; a probability known no better says nothing.
_COARSE = 0.1
# Of losses in nats and of probabilities, four decimals say enough; what is larger needs fewer, what is smaller more.
_DECIMALS, _LARGE, _SMALL = 4, 100.0, 5e-4

# What a cost in benchmark.decision.costs is of, by its key.
_COST_OF = {
    "false_positive": "acting on a row of label 0",
    "false_negative": "not acting on a row of label 1",
}


def count(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def counted(number: int, thing: str, things: str = "") -> str:
    """A count with its noun: 1 input, 4,001 inputs."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def about(value: int) -> str:
    """A number that is an estimate, rounded up to two digits: 4,001 is about 4,100."""
    unit = 10 ** max(len(str(value)) - 2, 0)
    return f"about {-(-value // unit) * unit:,}"


def words(name: str) -> str:
    """A name of code as words: `gradient_boosting` is `gradient boosting`."""
    return name.replace("_", " ")


def metric_name(name: str) -> str:
    """A metric as people say it: `r2` is R², `recall[late]` is recall of late."""
    if match := _OF_PART.fullmatch(name):
        metric, part = match.groups()
        return f"{metric_name(metric)} of {f'the {part} quantile' if metric in _QUANTILES else part}"
    return _METRICS.get(name, words(name))


def behaviour_measure(measure: str | None) -> str:
    """What says how much answers change if an input does."""
    return {
        "flip_rate": "share of decisions that flip",
        "mean_absolute_change": "mean absolute change of the answer",
        "violation_rate": "share of rows that go the other way",
    }.get(measure or "", "")


def stage_metric_name(name: str) -> str:
    """A metric of a stage as people say it: `val_auc` is validation AUC."""
    if name.endswith("_sd"):
        return f"sd of {stage_metric_name(name.removesuffix('_sd'))}"
    return f"validation {metric_name(name.removeprefix('val_'))}" if name.startswith("val_") else words(name)


def decimals_of(value: float, standard_error: float) -> int:
    """Decimals for a value with its interval: to two digits of the standard error, four where there is none.

    Losses in nats and probabilities have at least four, so that they can be compared at a glance.
    """
    # What is left of an error by rounding, where a model answers alike whatever group is left out, is none.
    if not (math.isfinite(standard_error) and standard_error > 1e-9 * abs(value)):
        return _DECIMALS
    least = _DECIMALS if standard_error < _COARSE else 0
    return min(max(1 - math.floor(math.log10(standard_error)), least), 12)


def figures(*values: float, sign: Literal["", "+"] = "") -> tuple[str, ...]:
    """Numbers of one quantity with equal decimals: four, unless its size makes these too many or too few."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = _DECIMALS
    if largest >= _LARGE or 0 < largest < _SMALL:
        decimals = min(max(3 - math.floor(math.log10(largest)), 0), 12)
    return tuple(f"{value:{sign},.{decimals}f}" for value in values)


def costs_told(costs: Mapping[str, Any]) -> str:
    """benchmark.decision.costs in words: `acting on a row of label 0 costs 1, ...`; empty without costs."""
    return ", ".join(f"{decided} costs {_cost(costs[key])}" for key, decided in _COST_OF.items() if key in costs)


def _cost(cost: float | str) -> str:
    return f"what its column {cost} says" if isinstance(cost, str) else f"{cost:.15g}"
