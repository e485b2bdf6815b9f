"""What is told of one model on the benchmark: its metrics, calibration, rates by protected columns, and residuals.

Of the candidate the evaluation tells it, of the champion, on the same rows, promotion.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.calibration import CALIBRATION_ERROR, calibrations
from trainworthy.lifecycle.evaluation.comparison import measured_by, row_weights, weighed
from trainworthy.lifecycle.evaluation.decision import reported_of_decisions
from trainworthy.lifecycle.evaluation.fairness import fairness
from trainworthy.lifecycle.evaluation.residuals import residuals
from trainworthy.lifecycle.evaluation.slice_parts import SlicePart
from trainworthy.lifecycle.evaluation.slice_results import part_metrics
from trainworthy.lifecycle.evaluation.slices import SliceResults, slice_metrics
from trainworthy.lifecycle.protocol.figures import Metric, ModelFigures
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import TaskMetric, estimate
from trainworthy.lifecycle.tasks.statistic_columns import from_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def model_figures(
    predictions: pd.DataFrame,
    model: str,
    spec: BenchmarkSpec,
    kind: Kind,
    *,
    parts: Sequence[SlicePart],
    features: pd.DataFrame | None,
    ordered: bool,
) -> ModelFigures:
    """All that is told of `model`, whose answers `predictions` has; parameters as of evaluate."""
    table = weighed(predictions)
    slices = all_slices(predictions, model, spec, kind, parts)
    metrics, undefined = overall_metrics(table, spec, kind, [model])
    figures = figures_of_model(table, model, spec, kind, features, ordered=ordered)
    lacking = tuple(f"{entry['metric']}: {entry['reason']}" for entry in undefined)
    return ModelFigures(metrics=(*metrics, *slices.metrics), not_defined=lacking, **figures)


def figures_of_model(
    table: pd.DataFrame, model: str, spec: BenchmarkSpec, kind: Kind, features: pd.DataFrame | None, *, ordered: bool
) -> dict[str, Any]:
    """Calibration, fairness and residuals. A bound on one of the first two decides. `table` has the rows that count."""
    features = None if features is None else features.loc[table.index]
    labels, answers = kind.checked_statistics(table["label"], from_columns(kind, model, table))
    claims, protected = kind.claims(labels, answers), spec.fairness
    bounded = any(guardrail.metric == CALIBRATION_ERROR for guardrail in spec.guardrails)
    return {
        "calibration": calibrations(model, claims, table["group"], row_weights(table), decides=bounded),
        "fairness": () if protected is None else fairness(table, protected, model, kind),
        "residuals": residuals(table, features, kind, spec.baselines, ordered=ordered, model=model),
    }


def overall_metrics(
    table: pd.DataFrame, spec: BenchmarkSpec, kind: Kind, models: Sequence[str]
) -> tuple[list[Metric], list[dict[str, Any]]]:
    """Each metric of each model, and those that are not defined: a constant answer predicts no row of a rare class."""
    labels, weights = kind.checked_labels(table["label"]), row_weights(table)
    declared = (spec.primary.metric, *(guardrail.metric for guardrail in spec.guardrails), *spec.metrics)
    metrics, undefined = [], []
    names = dict.fromkeys((*kind.reported, *reported_of_decisions(spec, kind), *declared))
    for model, name in itertools.product(models, names):
        metric, figures = measured_by(spec, kind, name, model, table)
        try:
            value = estimate(metric, labels, figures, table["group"], weights)
        except EvaluationError as error:
            undefined.append({"model": model, "metric": name, "reason": _why(metric, labels, figures) or error.problem})
        else:
            metrics.append(Metric(model=model, metric=name, estimate=value, rows=len(table)))
    return metrics, undefined


def _why(metric: TaskMetric, labels: np.ndarray, figures: np.ndarray) -> str:
    """Which rows a share of rows lacks; empty where that is not why it has no value."""
    import numpy as np

    if metric.events is None or np.isfinite(metric.events(labels, figures)).any():
        return ""
    base, _, of = metric.name.partition("[")
    value = of.removesuffix("]") or "1"
    return f"no row is decided {value}" if base == "precision" else f"no row that counts for {metric.name}"


def all_slices(
    predictions: pd.DataFrame, model: str, spec: BenchmarkSpec, kind: Kind, parts: Sequence[SlicePart]
) -> SliceResults:
    """The kind's metrics on every declared slice; `parts` are masks over all rows of `predictions`."""
    slices = slice_metrics(weighed(predictions), spec.slice_columns, model, kind, spec.slice_rows)
    return slices.joined(part_metrics(predictions, parts, model, kind, spec.slice_rows))
