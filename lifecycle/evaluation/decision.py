"""From which probability on a row counts as 1, or which class is answered, and what the decisions cost.

A threshold is declared, follows from what mistakes cost, or is where so many rows of the calibration split lie above.
Answers are calibrated probabilities, so a row is worth acting on as soon as its expected cost of waiting exceeds that
of acting: from false_positive / (false_positive + false_negative) on (Elkan 2001). Where rows have costs of their own
(row_costs.py), the threshold is the one that costs least on the calibration split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.evaluation.row_costs import cheapest_threshold, cost_metric
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, CostsSpec, DecisionSpec
from trainworthy.lifecycle.tasks.metric import DECISION_COST, TaskMetric

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.tasks.kind import Kind

# Of decisions, beside the kind's own metrics.
REPORTED = ("precision", "recall")


def decision_column(model: str) -> str:
    """Where a table of answers holds what a model's answers decide: 1.0 or 0.0, or a class's place."""
    return f"decision:{model}"


def decisions_of(model: str, table: pd.DataFrame) -> np.ndarray | None:
    """What a table of answers says that a model decides of each row, `(N,)`; None where no decision is declared."""
    name = decision_column(model)
    return table[name].to_numpy(dtype="float64") if name in table.columns else None


def fixed_threshold(decision: DecisionSpec) -> float | None:
    """The threshold that is the same for every model; None where each one's answers decide it."""
    numbers = None if decision.costs is None else _numbers(decision.costs)
    return decision.threshold if numbers is None else numbers[0] / (numbers[0] + numbers[1])


def _numbers(costs: CostsSpec) -> tuple[float, float] | None:
    """Costs of a false positive and of a false negative where all rows have the same; None where one is a column."""
    positive, negative = costs.false_positive, costs.false_negative
    return None if isinstance(positive, str) or isinstance(negative, str) else (positive, negative)


def threshold_for(
    decision: DecisionSpec, calibration: np.ndarray, labels: np.ndarray | None = None, costs: np.ndarray | None = None
) -> float:
    """The threshold, by a model's answers to the calibration rows, `(N,)`, where it is not the same for every model.

    Where rows have costs of their own, the cheapest one for these rows' labels and row_costs, `(N,)` each. Where a
    capacity is declared, the smallest answer from which on no more rows lie than it allows; above all answers where
    even the greatest one is given too often.
    """
    import numpy as np

    fixed = fixed_threshold(decision)
    if fixed is not None:
        return fixed
    if decision.cost_columns:
        assert labels is not None
        assert costs is not None
        return cheapest_threshold(calibration, labels, costs)
    assert decision.capacity is not None
    values, counts = np.unique(calibration, return_counts=True)
    above = counts[::-1].cumsum()[::-1]
    allowed = values[above <= decision.capacity * len(calibration)]
    return float(allowed[0]) if len(allowed) else float(np.nextafter(values[-1], 2.0))


def acts(answers: np.ndarray, threshold: float) -> np.ndarray:
    """Whether each answer counts as 1. Evaluated or served, a row is decided here."""
    return answers >= threshold


def cheapest(answers: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The place of the class that is cheapest to answer by each row's probabilities, `(N, classes)`; see cost_table."""
    return (answers @ costs).argmin(axis=1)


def cost_table(matrix: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> np.ndarray:
    """What each answer costs by the true class, `(true, answered)`; 1 for a mistake that is not declared."""
    import numpy as np

    return np.array([[matrix.get(true, {}).get(said, float(true != said)) for said in classes] for true in classes])


def decided(decision: DecisionSpec, kind: Kind, answers: np.ndarray, threshold: float | None) -> np.ndarray:
    """What answers decide, `(N,)`, as decision_column has it; `threshold` is the model's, where one decides."""
    if threshold is not None:
        return acts(answers, threshold).astype("float64")
    return cheapest(answers, cost_table(decision.cost_matrix or {}, kind.answer_names))


def decision_metrics(benchmark: BenchmarkSpec, kind: Kind) -> Mapping[str, TaskMetric]:
    """Metrics that there are for what is declared of decisions, beside the kind's own."""
    decision = benchmark.decision
    if decision is not None and decision.cost_matrix is not None:
        return {DECISION_COST: _cost_of_classes(decision.cost_matrix, kind.answer_names)}
    if decision is None or decision.costs is None:
        return {}
    numbers = _numbers(decision.costs)
    return {DECISION_COST: cost_metric() if numbers is None else _cost(*numbers)}


def reported_of_decisions(benchmark: BenchmarkSpec, kind: Kind) -> tuple[str, ...]:
    """Metrics that are told where decisions are declared, beside what the kind reports."""
    decision = benchmark.decision
    return (*(REPORTED if decision is not None and decision.by_threshold else ()), *decision_metrics(benchmark, kind))


def of_decisions(benchmark: BenchmarkSpec, kind: Kind, name: str) -> bool:
    """Whether a metric is one of what a declared decision makes of answers."""
    metric = {**decision_metrics(benchmark, kind), **kind.metrics}.get(name)
    return benchmark.decision is not None and metric is not None and metric.decides


def _cost(false_positive: float, false_negative: float) -> TaskMetric:
    """Mean cost of a row's decision, in the declared unit."""

    def rows(labels: np.ndarray, decided: np.ndarray) -> np.ndarray:
        import numpy as np

        acted = decided >= 0.5
        return np.where(labels == 1, false_negative * ~acted, false_positive * acted)

    most = max(false_positive, false_negative)
    return TaskMetric(DECISION_COST, False, rows=rows, low=0.0, high=most, decides=True)


def _cost_of_classes(matrix: Mapping[str, Mapping[str, float]], classes: Sequence[str]) -> TaskMetric:
    """Mean cost of the class that is decided: the cheapest one by a row's probabilities (Elkan 2001)."""
    costs = cost_table(matrix, classes)

    def rows(labels: np.ndarray, decided: np.ndarray) -> np.ndarray:
        return costs[labels, decided.astype("int64")]

    return TaskMetric(DECISION_COST, False, rows=rows, low=0.0, high=float(costs.max()), decides=True)
