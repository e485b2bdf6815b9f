"""The benchmark's figures from a table of answers, and whether they were measured validly.

The gate asks only that: a bad model that was measured well passes it. Judging is promotion's part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.blind_spots import benchmark_spots, blind_spots_check
from trainworthy.lifecycle.evaluation.comparison import comparison, row_weights, weighed
from trainworthy.lifecycle.evaluation.decision import decision_column
from trainworthy.lifecycle.evaluation.model_figures import all_slices, figures_of_model, overall_metrics
from trainworthy.lifecycle.evaluation.row_costs import COST_COLUMN, cost_problems, costs_of
from trainworthy.lifecycle.evaluation.slice_parts import SlicePart
from trainworthy.lifecycle.evaluation.slice_results import measured_slices
from trainworthy.lifecycle.evaluation.slices import SliceResults, slice_column
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.figures import (
    CANDIDATE,
    CHAMPION,
    BenchmarkFigures,
    Comparison,
    Metric,
    ReliabilityBin,
)
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.own import figure_columns
from trainworthy.lifecycle.tasks.statistic_columns import from_columns, statistic_columns

if TYPE_CHECKING:
    import pandas as pd


class Evaluation(BenchmarkFigures):
    """The measured part of an EvaluationReport. Without figures if a check stops the step."""

    metrics: tuple[Metric, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    reliability: tuple[ReliabilityBin, ...] = ()
    checks: tuple[CheckResult, ...]


def evaluate(
    predictions: pd.DataFrame,
    spec: BenchmarkSpec,
    kind: Kind,
    *,
    benchmark_rows: int,
    window: CheckResult,
    parts: Sequence[SlicePart] = (),
    features: pd.DataFrame | None = None,
    ordered: bool = False,
    cuts: Mapping[str, tuple[float, ...]] | None = None,
) -> Evaluation:
    """Metrics of every model, slices of the candidate, its paired gain over every other model, theirs over the prior.

    `predictions` has the columns row (unique), group, label, the statistics (tasks/kind.py) of candidate,
    of the spec's baselines, of champion if there is one, weight if the rows have one, figures of own metrics
    (tasks/own.py), decision_column of each where decisions are declared, COST_COLUMN where rows have costs of their own
    (row_costs.py), and slice_column of its slices;
    `benchmark_rows` is how many rows the benchmark has. `window` is the check benchmark_window (disjoint.py), `parts`
    are the slices that decide or have a rule (slice_parts.py). `features` are those of the same rows that may be told,
    `ordered` says whether groups follow each other in time, `cuts` where training rows cut numbers
    (slice_levels.training_cuts). Invalid input is told by the checks predictions and groups, not raised.
    """
    named = [name for name in (CHAMPION,) if set(statistic_columns(kind, name)) <= set(predictions.columns)]
    models = [CANDIDATE, *spec.baselines, *named]
    complete = _predictions_check(predictions, models, spec, kind, benchmark_rows)
    groups = _groups_check(predictions, kind, complete)
    if stopping((complete, window, groups)):
        return _body(predictions, spec, (complete, groups, window))
    table = weighed(predictions)
    metrics, undefined = overall_metrics(table, spec, kind, models)
    over = [(CANDIDATE, name) for name in models[1:]]
    of_baselines = [(name, "prior") for name in spec.baselines if name != "prior" and "prior" in spec.baselines]
    gains = {pair: _gain(table, spec, kind, *pair) for pair in (*over, *of_baselines)}
    lacking = [f"{spec.primary.metric} of {model} or {other}" for (model, other), gain in gains.items() if gain is None]
    slices = all_slices(predictions, CANDIDATE, spec, kind, parts)
    groups = _with_undefined(_with_slices(groups, slices), undefined, lacking)
    body = _body(predictions, spec, (complete, groups, window))
    if stopping((groups,)):
        return body
    spots = None
    if features is not None and cuts is not None:
        # The table has the index of the rows that it was made of.
        spots = benchmark_spots(table, features.loc[table.index], cuts, kind, spec.baselines)
    return body.model_copy(
        update={
            **figures_of_model(table, CANDIDATE, spec, kind, features, ordered=ordered),
            "checks": body.checks if spots is None else (*body.checks, blind_spots_check(spots)),
            "blind_spots": () if spots is None else spots.spots,
            "metrics": (*metrics, *slices.metrics),
            "comparisons": tuple(gain for pair in over if (gain := gains[pair]) is not None),
            "baseline_gains": tuple(gain for pair in of_baselines if (gain := gains[pair]) is not None),
            "slices": measured_slices(predictions, parts, spec, kind),
            "reliability": kind.reliability(
                *kind.checked_statistics(table["label"], from_columns(kind, CANDIDATE, table)), row_weights(table)
            ),
        }
    )


def _gain(table: pd.DataFrame, spec: BenchmarkSpec, kind: Kind, model: str, reference: str) -> Comparison | None:
    """The gain in the primary metric over the reference, by whose name it goes, or over the prior by the model's."""
    try:
        name = reference if model == CANDIDATE else model
        return comparison(spec, kind, (model, table), (reference, table), name)
    except EvaluationError:
        return None


def _with_undefined(groups: CheckResult, undefined: list[dict[str, Any]], lacking: list[str]) -> CheckResult:
    """The check with the metrics that are not defined; without one that decides nothing can be judged."""
    if lacking:
        evidence = f"the primary metric is not defined without each of the groups: {'; '.join(lacking)}"
        fix = (
            "take a primary metric that every model has a value of, such as the kind's loss, or more rows of rare ones"
        )
        return groups.model_copy(
            update={"status": "insufficient", "evidence": evidence, "fix": fix, "details": tuple(undefined)}
        )
    if not undefined:
        return groups
    names = ", ".join(f"{metric['metric']} of {metric['model']}" for metric in undefined[:3])
    more = f" and {len(undefined) - 3} more" if len(undefined) > 3 else ""
    evidence = f"{groups.evidence}; not defined: {names}{more}"
    return groups.model_copy(update={"evidence": evidence, "details": (*groups.details, *undefined)})


def _body(predictions: pd.DataFrame, spec: BenchmarkSpec, checks: tuple[CheckResult, ...]) -> Evaluation:
    groups = int(predictions["group"].nunique()) if "group" in predictions.columns else 0
    return Evaluation(rows=len(predictions), groups=groups, primary=spec.primary.metric, checks=checks)


def _predictions_check(
    predictions: pd.DataFrame, models: list[str], spec: BenchmarkSpec, kind: Kind, benchmark_rows: int
) -> CheckResult:
    """Every benchmark row once, with its label, its group and an answer of every model."""
    answers = [column for model in models for column in statistic_columns(kind, model)]
    weight = () if spec.weight is None else ("weight",)
    own = [figure_columns(name, model, 1)[0] for model in models for name in spec.metrics]
    decided = [decision_column(model) for model in models] if spec.decision is not None else []
    costs = [COST_COLUMN] if spec.cost_columns else []
    columns = ["row", "group", "label", *weight, *costs, *answers, *own, *decided]
    columns += map(slice_column, spec.kept_columns)
    problems = [f"the column {name} is missing" for name in columns if name not in predictions.columns]
    if not problems:
        problems = _row_problems(predictions, models, spec, kind, benchmark_rows)
    return CheckResult(
        name="predictions",
        status="fail" if problems else "pass",
        required=True,
        observed=len(predictions),
        threshold=benchmark_rows,
        evidence="; ".join(problems) or f"{len(predictions)} rows scored by {', '.join(models)}",
        fix="score every row of the benchmark once with every model; answers are those of the task's kind",
    )


def _row_problems(
    predictions: pd.DataFrame, models: list[str], spec: BenchmarkSpec, kind: Kind, benchmark_rows: int
) -> list[str]:
    import numpy as np

    problems = []
    if len(predictions) != benchmark_rows or benchmark_rows < 1:
        problems.append(f"{len(predictions)} rows were scored, the benchmark has {benchmark_rows}")
    if predictions["row"].duplicated().any() or predictions["row"].isna().any():
        problems.append("rows are missing their number or occur twice")
    if predictions["group"].isna().any():
        problems.append(f"{int(predictions['group'].isna().sum())} rows have no group")
    weights = row_weights(predictions)
    if weights is not None and not (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0):
        problems.append("the column benchmark.weight holds values that are no finite number from 0 on, or only zeros")
    try:
        labels = kind.checked_labels(predictions["label"])
    except EvaluationError as error:
        return [*problems, error.problem]
    if spec.decision is not None and spec.decision.costs is not None and spec.cost_columns:
        cost_mistakes = cost_problems(spec.decision.costs, labels, costs_of(predictions), weights, chosen_on=False)
        problems += [f"benchmark.decision.{mistake}" for mistake in cost_mistakes]
    for model in models:
        try:
            kind.checked_statistics(labels, from_columns(kind, model, predictions))
        except EvaluationError as error:
            problems.append(f"{model}: {error.problem}")
    return problems


def _groups_check(predictions: pd.DataFrame, kind: Kind, complete: CheckResult) -> CheckResult:
    """Enough groups for an interval, with labels that differ as the kind's metrics need it."""
    if complete.stops:
        evidence = "not measured: the predictions are incomplete"
        return CheckResult(name="groups", status="insufficient", required=True, evidence=evidence, fix=complete.fix)
    table = weighed(predictions)
    reason = kind.shortage(table["label"], table["group"])
    groups = int(table["group"].nunique())
    return CheckResult(
        name="groups",
        status="insufficient" if reason else "pass",
        required=True,
        observed=groups,
        threshold=MINIMUM_GROUPS,
        evidence=reason or f"{groups} groups, with labels that differ in at least two of them",
        fix="take a longer benchmark window, or resample by a finer column",
    )


def _with_slices(groups: CheckResult, slices: SliceResults) -> CheckResult:
    """The check with the slices that were too small. They are told, not held against the model."""
    if not slices.insufficient:
        return groups
    count = len(slices.insufficient)
    evidence = f"{groups.evidence}; {count} {'slice is' if count == 1 else 'slices are'} too small to measure"
    return groups.model_copy(update={"evidence": evidence, "details": slices.insufficient})
