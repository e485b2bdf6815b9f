"""What a wrong decision costs where rows have costs of their own, and the one threshold that is cheapest for them.

A table of answers has what each row costs if it is decided wrongly, so that figures, gains and later questions need no
row of the data. The threshold is one number for all rows, chosen by the costs of the calibration rows: a row's own cost
need not be known when it is decided, and the number can be frozen with the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.spec.benchmark import CostsSpec
from trainworthy.lifecycle.tasks.labels import labels_of
from trainworthy.lifecycle.tasks.metric import DECISION_COST, TaskMetric

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Of a table of answers: what the row costs if it is decided wrongly. No model, and no part of one's name, has a colon.
COST_COLUMN = "cost:row"
# By the key of costs: the label of the rows that it is of.
LABEL_OF = {"false_positive": 0, "false_negative": 1}
# Total costs that differ by less than this share of all costs are equal: sums in another order differ by it.
_EQUAL = 1e-12


def row_costs(costs: CostsSpec, labels: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
    """What each row costs if it is decided wrongly, `(N,)`, of labels `(N,)` of 0 and 1; NaN where that is missing."""
    import numpy as np

    values = np.empty(len(labels), dtype=np.float64)
    for key, label in LABEL_OF.items():
        cost, of_label = getattr(costs, key), labels == label
        values[of_label] = (
            rows[cost].to_numpy(dtype="float64", na_value=math.nan)[of_label] if isinstance(cost, str) else cost
        )
    return values


def cost_problems(
    costs: CostsSpec, labels: np.ndarray, values: np.ndarray, weights: np.ndarray | None = None, *, chosen_on: bool
) -> list[str]:
    """Why rows cannot be decided by their costs; `values` are their costs by row_costs.

    Rows of weight 0 count nowhere, so theirs may be anything. Each label needs a cost above 0, or all that is told of
    it is 0. Rows that a threshold is `chosen_on` need both labels: without one of them everything, or nothing, is acted
    on.
    """
    import numpy as np

    if weights is not None:
        labels, values = labels[weights > 0], values[weights > 0]
    problems = []
    for key, label in LABEL_OF.items():
        of_label = values[labels == label]
        said = f"costs.{key}" + (f" ({costs.columns[key]})" if key in costs.columns else "")
        missing, infinite, negative = np.isnan(of_label), np.isinf(of_label), np.isfinite(of_label) & (of_label < 0)
        wrong = {"missing": missing, "infinite": infinite & ~missing, "below 0": negative}
        counts = [f"{int(which.sum())} {name}" for name, which in wrong.items() if which.any()]
        if counts:
            problems.append(f"{said}: of {len(of_label)} rows of label {label} {', '.join(counts)}")
        elif not len(of_label):
            problems += [f"{said}: there is no row of label {label}"] if chosen_on else []
        elif not of_label.any():
            problems.append(f"{said}: all {len(of_label)} rows of label {label} cost 0")
    return problems


def refuse_split_costs(costs: CostsSpec, rows: Rows, paths: Mapping[str, str], weight: str | None) -> None:
    """Raises EvaluationError where the splits `benchmark` and `calibration`, at `paths`, have rows without a cost.

    Of each split the label, the costs and the benchmark's weight are read, so that it can be asked before a training.
    """
    few, problems = rows.model_copy(update={"features": (), "keys": (), "files": ()}), {}
    for split, path in paths.items():
        weighing = weight if split == "benchmark" else None
        frame = read_rows(path, few, (*costs.columns.values(), *([] if weighing is None else [weighing])))
        labels = labels_of(rows, frame)
        weights = None if weighing is None else frame[weighing].to_numpy(dtype="float64", na_value=math.nan)
        chosen_on = split != "benchmark"
        problems[split] = cost_problems(costs, labels, row_costs(costs, labels, frame), weights, chosen_on=chosen_on)
    refuse_costs(problems)


def refuse_costs(problems: Mapping[str, list[str]]) -> None:
    """Raises EvaluationError with all that is wrong, by the split that it is of."""
    listed = [f"{split} rows: {problem}" for split, split_problems in problems.items() for problem in split_problems]
    if listed:
        raise EvaluationError(
            "benchmark.decision.costs: rows have no cost that a decision can be told by",
            value="; ".join(listed),
            fix="let the column have a number from 0 on in every row of that label, some above 0, or give a number for "
            "all rows; a quality rule of contract.yaml refuses such rows before a model is trained",
        )


def cheapest_threshold(answers: np.ndarray, labels: np.ndarray, costs: np.ndarray) -> float:
    """From which answer on acting costs least in total on these rows, all `(N,)`; every row counts once.

    One of the answers, or the next number above all of them, where acting on none is cheapest. Of thresholds that cost
    the same the greatest: it acts on the fewest rows.
    """
    import numpy as np

    values, places = np.unique(answers, return_inverse=True)
    missed = np.bincount(places, weights=np.where(labels == 1, costs, 0.0))
    acted = np.bincount(places, weights=np.where(labels == 0, costs, 0.0))
    # Of values[i] as the threshold: what lies below is missed, what lies from it on is acted on.
    total = np.concatenate([[0.0], np.cumsum(missed)]) + np.concatenate([np.cumsum(acted[::-1])[::-1], [0.0]])
    cheapest = int(np.flatnonzero(total <= total.min() + _EQUAL * costs.sum())[-1])
    return float(values[cheapest]) if cheapest < len(values) else float(np.nextafter(values[-1], 2.0))


def costs_of(table: pd.DataFrame) -> np.ndarray:
    """What each row of a table of answers costs if it is decided wrongly, `(N,)`. Raises EvaluationError without."""
    if COST_COLUMN not in table.columns:
        fix = "evaluate the model again: benchmark.decision.costs names a column now"
        raise EvaluationError("the answers were kept without the costs of their rows", value=COST_COLUMN, fix=fix)
    return table[COST_COLUMN].to_numpy(dtype="float64")


def cost_figures(table: pd.DataFrame, decided: np.ndarray) -> np.ndarray:
    """What each row's decision cost, `(N,)`, of a table of answers and decisions `(N,)` of 1.0 and 0.0."""
    import numpy as np

    wrong = (decided >= 0.5) != (table["label"].to_numpy() == 1)
    return np.where(wrong, costs_of(table), 0.0)


def cost_metric(costs: np.ndarray | None = None) -> TaskMetric:
    """Mean cost of a row's decision; its `answers` are what cost_figures gives.

    No mean is above the greatest of `costs`, those of the rows that are measured; without them it has no upper end.
    """
    high = math.inf if costs is None else float(costs.max(initial=0.0))
    return TaskMetric(DECISION_COST, False, rows=lambda _, figures: figures, low=0.0, high=high, decides=True)
