"""The slices that decide: what the candidate reaches on each, and its gain there over the champion.

An interval needs 8 groups and a metric that is defined without each of them. Where it has not, nothing is measured, and
the result says why: no interval never becomes one of width 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import comparison, measured_by, row_weights, shortage_of, weighed
from trainworthy.lifecycle.evaluation.slice_parts import SlicePart
from trainworthy.lifecycle.evaluation.slices import SliceResults, metrics_of_slice
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.protocol.figures import Metric, SliceResult
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import estimate

if TYPE_CHECKING:
    import pandas as pd


def part_metrics(
    predictions: pd.DataFrame, parts: Sequence[SlicePart], model: str, kind: Kind, least_rows: int
) -> SliceResults:
    """The kind's metrics of slices that are a condition or a file; those of columns are slice_metrics' (slices.py)."""
    metrics: list[Metric] = []
    small: list[dict[str, Any]] = []
    for part in parts:
        if part.declared.column is not None:
            continue
        rows = weighed(predictions[part.mask])
        # What decides is measured from few rows on, and told where it was.
        least = FEWEST_ROWS if part.declared.decides else least_rows
        reason = kind.shortage(rows["label"], rows["group"], least) if len(rows) else "no row of the benchmark"
        if reason:
            small.append({"slice": part.name, "rows": len(rows), "reason": reason})
        else:
            metrics += metrics_of_slice(rows, model, kind, part.name)
    return SliceResults(tuple(metrics), tuple(small))


def measured_slices(
    predictions: pd.DataFrame, parts: Sequence[SlicePart], benchmark: BenchmarkSpec, kind: Kind
) -> tuple[SliceResult, ...]:
    """What the candidate reaches on each part that decides; `predictions` as in evaluate."""
    return tuple(_measured(predictions, part, benchmark, kind) for part in parts if part.declared.decides)


def _measured(predictions: pd.DataFrame, part: SlicePart, benchmark: BenchmarkSpec, kind: Kind) -> SliceResult:
    table = weighed(predictions[part.mask])
    name = benchmark.primary.metric if part.declared.metric is None else part.declared.metric
    result = SliceResult(
        slice=part.name,
        declared=part.declared,
        rows=len(table),
        groups=int(table["group"].nunique()),
        metric=name,
        unmatched=part.unmatched,
        told=shortage_of(benchmark, kind, name, table),
    )
    if result.told or not part.declared.bounded:
        return result
    try:
        metric, figures = measured_by(benchmark, kind, result.metric, "candidate", table)
        measured = estimate(metric, kind.checked_labels(table["label"]), figures, table["group"], row_weights(table))
    except EvaluationError as error:
        return result.model_copy(update={"told": error.problem})
    return result.model_copy(update={"estimate": measured})


def with_gains(
    results: Sequence[SliceResult],
    parts: Sequence[SlicePart],
    candidate: pd.DataFrame,
    champion: pd.DataFrame,
    benchmark: BenchmarkSpec,
    kind: Kind,
) -> tuple[SliceResult, ...]:
    """The same results with the gain over the champion.

    Both tables of answers have the benchmark's rows in its order; each has its model's answers as `candidate`.
    """
    deciding = [part for part in parts if part.declared.decides]
    return tuple(
        _with_gain(result, candidate[part.mask], champion[part.mask], benchmark, kind) if not result.told else result
        for result, part in zip(results, deciding, strict=True)
    )


def _with_gain(
    result: SliceResult, mine: pd.DataFrame, theirs: pd.DataFrame, benchmark: BenchmarkSpec, kind: Kind
) -> SliceResult:
    try:
        compared = comparison(benchmark, kind, ("candidate", mine), ("candidate", theirs), "champion")
    except EvaluationError as error:
        # Where no margin to the champion is declared, its gain is only told.
        return result if result.declared.champion_margin is None else result.model_copy(update={"told": error.problem})
    return result.model_copy(update={"gain": compared.gain})
