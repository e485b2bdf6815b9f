"""Two models on the same rows: every metric of both, the paired gain, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import measured_by, row_weights, shortage_of, weighed
from trainworthy.lifecycle.evaluation.decision import decided, decision_column, reported_of_decisions
from trainworthy.lifecycle.evaluation.slices import slice_codes, slice_column
from trainworthy.lifecycle.protocol.figures import CANDIDATE, CHAMPION, Compared
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import estimate, gain
from trainworthy.lifecycle.tasks.statistic_columns import from_columns


def compared(
    table: pd.DataFrame, benchmark: BenchmarkSpec, kind: Kind, masks: Mapping[str, np.ndarray]
) -> tuple[Compared, ...]:
    """All metrics over all rows, then over each part the primary one, and the one that its bound is of.

    `table` is one of both models' answers (kept_answers.side_by_side), `masks` are parts by name, `(N,)` of booleans;
    the values of slice columns that the table holds are parts as well.
    """
    table = _with_decisions(table, benchmark, kind)
    declared = (benchmark.primary.metric, *(guardrail.metric for guardrail in benchmark.guardrails), *benchmark.metrics)
    names = dict.fromkeys((*declared, *reported_of_decisions(benchmark, kind), *kind.reported))
    whole = tuple(_compared_metric("", name, table, benchmark, kind) for name in names)
    parts = {**_of_columns(table, benchmark), **masks}
    bounded = _metrics_of_parts(table, benchmark)
    return whole + tuple(
        _compared_metric(part, name, table[mask], benchmark, kind)
        for part, mask in parts.items()
        for name in dict.fromkeys((benchmark.primary.metric, *bounded.get(part, ())))
    )


def _metrics_of_parts(table: pd.DataFrame, benchmark: BenchmarkSpec) -> dict[str, list[str]]:
    """The metrics that slices are judged by other than the primary one, by part."""
    by_part: dict[str, list[str]] = {}
    for slice_spec in benchmark.slices:
        if slice_spec.metric is None:
            continue
        names = [slice_spec.title] if slice_spec.column is None else _of_columns(table, benchmark, (slice_spec.column,))
        for name in names:
            by_part.setdefault(name, []).append(slice_spec.metric)
    return by_part


def _with_decisions(table: pd.DataFrame, benchmark: BenchmarkSpec, kind: Kind) -> pd.DataFrame:
    """The table with the classes that a cost matrix decides: answers were once kept without them."""
    decision = benchmark.decision
    if decision is None or decision.by_threshold:
        return table
    lacking = [model for model in (CANDIDATE, CHAMPION) if decision_column(model) not in table.columns]
    answers = {model: from_columns(kind, model, table) for model in lacking}
    return with_columns(
        table, {decision_column(model): decided(decision, kind, of, None) for model, of in answers.items()}
    )


def _of_columns(
    table: pd.DataFrame, benchmark: BenchmarkSpec, columns: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Values of the slice columns, or of these, that have rows enough."""
    masks: dict[str, np.ndarray] = {}
    for column in benchmark.slice_columns if columns is None else columns:
        if slice_column(column) in table.columns:
            codes, names = slice_codes(table[slice_column(column)].rename(column))
            sizes = np.bincount(codes, minlength=len(names))
            large = [code for code in np.argsort(-sizes, kind="stable") if sizes[code] >= benchmark.slice_rows]
            masks |= {names[code]: codes == code for code in large}
    return masks


def _compared_metric(part: str, name: str, rows: pd.DataFrame, benchmark: BenchmarkSpec, kind: Kind) -> Compared:
    table = weighed(rows)
    plain = Compared(part=part, metric=name, rows=len(table), groups=int(table["group"].nunique()))
    try:
        if shortage := shortage_of(benchmark, kind, name, table):
            return plain.model_copy(update={"told": shortage})
        metric, mine = measured_by(benchmark, kind, name, CANDIDATE, table)
        _, theirs = measured_by(benchmark, kind, name, CHAMPION, table)
        labels, groups, weights = kind.checked_labels(table["label"]), table["group"], row_weights(table)
        figures = {
            "first": estimate(metric, labels, mine, groups, weights),
            "second": estimate(metric, labels, theirs, groups, weights),
            "gain": gain(metric, labels, mine, theirs, groups, weights),
        }
    except (EvaluationError, KeyError) as error:
        return plain.model_copy(update={"told": error.problem if isinstance(error, EvaluationError) else str(error)})
    return plain.model_copy(update=figures)
