"""The candidate's metrics over parts of the benchmark, one slice a value of each declared column.

A column of text, booleans or at most 10 different numbers has one slice a value; any other numeric
column has four, cut at its quartiles over the benchmark rows (the slice's name holds the cuts); missing
values are a slice of their own. Slices that are too small for an interval are listed, never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.evaluation.decision import decisions_of
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.protocol.figures import Metric
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import TaskMetric, estimate
from trainworthy.lifecycle.tasks.statistic_columns import from_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

LEAST_ROWS = 200
_SINGLE_NUMBERS = 10
_CODE = "value"
# A column of 4,000 planes would otherwise fill the record with slices that say nothing.
MOST_NAMED = 20


@dataclass(frozen=True)
class SliceResults:
    """Metrics of the slices that can be measured; the others with their rows and the reason."""

    metrics: tuple[Metric, ...]
    insufficient: tuple[dict[str, Any], ...]

    def joined(self, other: SliceResults) -> SliceResults:
        """These slices and others."""
        return SliceResults(self.metrics + other.metrics, self.insufficient + other.insufficient)


def slice_column(name: str) -> str:
    """Where the predictions hold the slice column `name`: apart, since it may be called label, group or prior."""
    return f"slice:{name}"


def coded(values: pd.Series) -> pd.Series:
    """A sensitive column's slices as numbers in the order in which they first occur: `value 1`, a null stays one.

    Rows that share a slice can be told, so that it can be measured; which value it is, the rows do not say.
    Raises EvaluationError as slice_codes.
    """
    import pandas as pd

    codes, names = slice_codes(values)
    missing = f"{values.name} missing"
    order = {int(code): f"{_CODE} {place}" for place, code in enumerate(pd.unique(codes), start=1)}
    coded_values = [None if names[code] == missing else order[int(code)] for code in codes]
    return pd.Series(coded_values, index=values.index, name=values.name, dtype="str")


def coded_groups(groups: pd.Series) -> pd.Series:
    """A sensitive column's groups as numbers in the order in which they first occur: `value 03`; a null stays one.

    Padded, so that they sort as they came: what takes neighbouring groups together still takes neighbours.
    """
    import numpy as np
    import pandas as pd

    codes, names = pd.factorize(groups)
    width = len(str(len(names)))
    # The code of a null is -1, and so the last one.
    code_names = np.array([*(f"{_CODE} {place:0{width}}" for place in range(1, len(names) + 1)), None], dtype=object)
    return pd.Series(code_names[codes], index=groups.index, name=groups.name, dtype="str")


def is_coded(values: pd.Series) -> bool:
    """Whether a column holds nothing but what `coded` and `coded_groups` give."""
    return bool(values.dropna().astype("str").str.fullmatch(rf"{_CODE} \d+").all())


def slice_metrics(
    predictions: pd.DataFrame, columns: Sequence[str], model: str, kind: Kind, least_rows: int = LEAST_ROWS
) -> SliceResults:
    """The kind's metrics of `model` per slice of `least_rows` rows at least.

    `predictions` has label, group, the model's answers and slice_column of each.
    """
    per_column = [_column(predictions, column, model, kind, least_rows) for column in columns]
    return SliceResults(
        tuple(metric for results in per_column for metric in results.metrics),
        tuple(item for results in per_column for item in results.insufficient),
    )


def _column(predictions: pd.DataFrame, column: str, model: str, kind: Kind, least_rows: int) -> SliceResults:
    """The slices of one column. Of those too small the greatest 20 are named, the others counted together."""
    import numpy as np

    codes, names = slice_codes(predictions[slice_column(column)].rename(column))
    sizes = np.bincount(codes, minlength=len(names))
    metrics: list[Metric] = []
    named: list[dict[str, Any]] = []
    counted: list[int] = []
    for code in np.argsort(-sizes, kind="stable"):
        size = int(sizes[code])
        if size < FEWEST_ROWS or (size < least_rows and len(named) >= MOST_NAMED):
            counted.append(size)
            continue
        rows = predictions[codes == code]
        reason = kind.shortage(rows["label"], rows["group"], least_rows)
        if reason:
            named.append({"slice": names[code], "rows": size, "reason": reason})
        else:
            metrics += metrics_of_slice(rows, model, kind, names[code])
    if counted:
        most = max(counted)
        reason = f"{len(counted)} values of at most {most} rows each" if len(counted) > 1 else f"1 value of {most} rows"
        named.append({"slice": f"{column}: small values", "rows": sum(counted), "reason": reason})
    return SliceResults(tuple(metrics), tuple(named))


def slice_codes(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """The slice of each row as code, shape `(N,)`, and the slices' names.

    Raises EvaluationError for timestamps, whose values do not come back in the next window.
    """
    import numpy as np
    import pandas as pd

    column = str(values.name)
    if pd.api.types.is_datetime64_any_dtype(values) or pd.api.types.is_timedelta64_dtype(values):
        raise EvaluationError(
            f"the slice column {column} holds times",
            value=str(values.dtype),
            fix="slice by a column derived from it, such as the hour",
        )
    if pd.api.types.is_numeric_dtype(values) and values.nunique() > _SINGLE_NUMBERS:
        codes, names = _quartiles(values.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan), column)
    else:
        codes, distinct = pd.factorize(values, sort=False)
        names = [f"{column}={value}" for value in distinct]
    if (codes < 0).any():
        codes, names = np.where(codes < 0, len(names), codes), [*names, f"{column} missing"]
    return codes, names


def _quartiles(values: np.ndarray, column: str) -> tuple[np.ndarray, list[str]]:
    import numpy as np

    known = values[~np.isnan(values)]
    cuts = np.unique(np.quantile(known, [0.25, 0.5, 0.75], method="inverted_cdf"))
    # The greatest value as a cut (half of the rows are at the maximum) would leave an empty last slice.
    cuts = cuts[cuts < known.max()]
    cuts = cuts if len(cuts) else known[known < known.max()].max(keepdims=True)
    codes = np.where(np.isnan(values), -1, np.searchsorted(cuts, values, side="left"))
    middle = [f"{low:g} < {column} <= {high:g}" for low, high in pairwise(cuts)]
    return codes, [f"{column} <= {cuts[0]:g}", *middle, f"{column} > {cuts[-1]:g}"]


def metrics_of_slice(rows: pd.DataFrame, model: str, kind: Kind, name: str) -> list[Metric]:
    """The kind's metrics of one slice's rows, those of decisions by what is decided where that is declared."""
    labels, answers = kind.checked_statistics(rows["label"], from_columns(kind, model, rows))
    decided = decisions_of(model, rows)

    def figures(metric: TaskMetric) -> np.ndarray:
        return decided if metric.decides and decided is not None else answers

    return [
        Metric(
            model=model,
            metric=metric.name,
            estimate=estimate(metric, labels, figures(metric), rows["group"], row_weights(rows)),
            rows=len(rows),
            slice=name,
        )
        for metric in (kind.metrics[metric_name] for metric_name in kind.sliced)
    ]
