"""The candidate against a reference on the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.decision import decision_metrics, decisions_of
from trainworthy.lifecycle.evaluation.row_costs import cost_figures, cost_metric, costs_of
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.protocol.figures import CANDIDATE, Comparison, Estimate
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.interval import few_groups
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import DECISION_COST, TaskMetric, gain
from trainworthy.lifecycle.tasks.own import own_metric, stored_figures
from trainworthy.lifecycle.tasks.statistic_columns import from_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def paired_gain(
    kind: Kind, labels: Any, candidate: Any, reference: Any, groups: Any, metric: str, *, name: str, weights: Any = None
) -> Comparison:
    """By how much the candidate is better than the reference in a metric of the kind, with its interval by group.

    Labels `(N,)`, answers `(N, ...)` and groups have the same row order; `name` is the reference's. Raises
    EvaluationError on rows without an answer and on fewer than 8 groups.
    """
    labels, candidate = kind.checked(labels, candidate)
    _, reference = kind.checked(labels, reference)
    paired_difference = gain(kind.metrics[metric], labels, candidate, reference, groups, weights)
    return Comparison(reference=name, metric=metric, gain=paired_difference)


def measured_by(
    benchmark: BenchmarkSpec, kind: Kind, name: str, model: str, table: pd.DataFrame
) -> tuple[TaskMetric, np.ndarray]:
    """A metric of the kind or of the use case's own, and what it is computed of: a model's answers, or own figures.

    Raises EvaluationError where rows have costs of their own, and the table was made without them or all are 0.
    """
    of_decisions = decision_metrics(benchmark, kind)
    metric, decided = {**of_decisions, **kind.metrics}.get(name), decisions_of(model, table)
    if metric is not None and metric.decides and decided is not None:
        if name == DECISION_COST and benchmark.cost_columns:
            costs = costs_of(table)
            if not costs.any():
                fix = "measure rows together of which some cost something"
                raise EvaluationError(
                    "no row of these costs anything if it is decided wrongly", value=len(table), fix=fix
                )
            return cost_metric(costs), cost_figures(table, decided)
        return metric, decided
    if name in benchmark.metrics:
        figures = stored_figures(name, model, table)
        return own_metric(name, benchmark.metrics[name].better, figures.shape[1]), figures
    # A cost is one of decisions, and none of answers alone.
    return kind.metrics[name], kind.checked_statistics(table["label"], from_columns(kind, model, table))[1]


def shortage_of(benchmark: BenchmarkSpec, kind: Kind, name: str, table: pd.DataFrame) -> str:
    """Why these rows, of a table with the candidate's answers, carry no interval of a metric; empty if they do.

    A mean over rows needs groups alone: a log loss is defined where all rows have one label. Other metrics, such as an
    AUC, need labels that differ.
    """
    if not len(table):
        return "no row of the benchmark"
    try:
        metric, _ = measured_by(benchmark, kind, name, CANDIDATE, table)
    except EvaluationError as error:
        return error.problem
    labels, groups = table["label"], table["group"]
    few = few_groups(labels, groups, FEWEST_ROWS)[0]
    return few if few or metric.rows is not None else kind.shortage(labels, groups, FEWEST_ROWS)


def metric_columns(benchmark: BenchmarkSpec, snapshot: Snapshot) -> tuple[str, ...]:
    """What metrics of the use case's own see of a row, for every model alike: features, slices and the weight."""
    weight = () if benchmark.weight is None else (benchmark.weight,)
    return (
        tuple(dict.fromkeys((*snapshot.feature_columns, *benchmark.slice_columns, *weight)))
        if benchmark.metrics
        else ()
    )


def comparison(
    benchmark: BenchmarkSpec, kind: Kind, candidate: tuple[str, pd.DataFrame], reference: tuple[str, pd.DataFrame],
    name: str,
) -> Comparison:  # fmt: skip
    """Gain of a model over another in the primary metric; each is a name and the table of predictions that holds it.

    Both tables have the same rows in the same order; label, group and weight are taken from the candidate's.
    """
    table, other, primary = candidate[1], reference[1], benchmark.primary.metric
    weights = row_weights(table)
    if weights is not None:
        table, other = table[weights > 0], other[weights > 0]
    metric, mine = measured_by(benchmark, kind, primary, candidate[0], table)
    _, theirs = measured_by(benchmark, kind, primary, reference[0], other)
    paired_difference = gain(
        metric, kind.checked_labels(table["label"]), mine, theirs, table["group"], row_weights(table)
    )
    return Comparison(reference=name, metric=primary, gain=paired_difference)


def row_weights(predictions: pd.DataFrame) -> np.ndarray | None:
    """What weighs the rows of a table of predictions, `(N,)`; None where they count alike."""
    return predictions["weight"].to_numpy(dtype="float64") if "weight" in predictions.columns else None


def weighed(predictions: pd.DataFrame) -> pd.DataFrame:
    """The rows that count: those of weight 0 are in no figure, and a group of nothing else is none."""
    weights = row_weights(predictions)
    return predictions if weights is None else predictions[weights > 0]


def standing(gain: Estimate) -> str:
    """How one stands to what the gain is over, by the interval: what holds 0 shows neither better nor as good."""
    return "better than" if gain.shows_gain else "worse than" if gain.shows_loss else "not measurably better than"


def not_better_than_prior(baseline_gains: Iterable[Comparison]) -> dict[str, Estimate]:
    """Baselines that are not shown to be better than the prior: a gain over one of them shows nothing.

    `baseline_gains` are the baselines' own gains over the prior, each with the baseline as its reference.
    """
    return {item.reference: item.gain for item in baseline_gains if not item.gain.shows_gain}
