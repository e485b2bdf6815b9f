"""Declared tests of what a model answers if one input changes: invariances and directions.

An invariance fails in the rows whose decision flips, or by how far numbers move; a direction in the rows whose answer
goes the other way along quantiles of the training rows. They are the invariance and directional
expectation tests of Ribeiro et al. (2020).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.changed_inputs import altered, constant, grid
from trainworthy.lifecycle.evaluation.rescored import ROUNDING, InputProbe, measure_of
from trainworthy.lifecycle.protocol.figures import BehaviourResult, Estimate
from trainworthy.lifecycle.protocol.jobs import ChangedInputsJob, InputColumn
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec

# A share of so many rows is known to less than a hundredth where rows are independent; where they are not, more rows of
# the same groups tell little more.
MOST_ROWS = 20_000


def behaviour_results(probe: InputProbe, training: pd.DataFrame, job: ChangedInputsJob) -> tuple[BehaviourResult, ...]:
    """Each declared test, on all rows of the benchmark or many of them."""
    if not job.tests:
        return ()
    columns = {column.name: column for column in job.columns}
    some = probe.sample(MOST_ROWS)
    return tuple(_result(some, test, columns.get(test.column), training) for test in job.tests)


def _result(
    probe: InputProbe, test: BehaviourSpec, column: InputColumn | None, training: pd.DataFrame
) -> BehaviourResult:
    measure = "violation_rate" if test.direction else measure_of(probe.kind) or "flip_rate"
    plain = BehaviourResult(declared=test, measure=measure, rows=len(probe.rows))
    if column is None:
        return plain.model_copy(update={"told": f"{test.column} is no feature whose values can be changed"})
    ask = _direction if test.direction else _invariance
    try:
        return plain.model_copy(update={"estimate": ask(probe, test, column, training[column.name])})
    except EvaluationError as error:
        return plain.model_copy(update={"told": error.problem})


def _invariance(probe: InputProbe, test: BehaviourSpec, column: InputColumn, training: pd.Series) -> Estimate:
    change = test.invariant_to
    assert change is not None
    values, _ = altered(probe, column, change, training)
    moved = probe.moved(probe.again(values))
    if moved is None:
        raise EvaluationError("answers have no decision and no number", fix="remove the test")
    return moved


def _direction(probe: InputProbe, test: BehaviourSpec, column: InputColumn, training: pd.Series) -> Estimate:
    """The share of rows whose answer, as the value rises, goes back by more than the tolerance from where it was."""
    values = grid(column, training)
    if len(values) < 2:
        fix = "remove the test, or train on rows with other values"
        raise EvaluationError("training rows have no two values", value=column.name, fix=fix)
    statistics_by_value = [probe.again(constant(probe.rows[column.name], value)) for value in values]
    answers = np.stack([_of_claim(probe.numbers(statistics), test) for statistics in statistics_by_value])
    rising = -answers if test.direction == "falls" else answers
    back = (np.maximum.accumulate(rising, axis=0) - rising).max(axis=0)
    rounding = ROUNDING * float(np.max(probe.kind.answer_scale(probe.plain)))
    failed = np.asarray(back > max(test.tolerance, rounding))
    return probe.share(failed, unmoved=all(map(probe.unmoved, statistics_by_value)))


def _of_claim(numbers: dict[str, np.ndarray], test: BehaviourSpec) -> np.ndarray:
    """That of the claim, or the only one."""
    name = test.claim or (next(iter(numbers)) if len(numbers) == 1 else "")
    if name not in numbers:
        raise EvaluationError("the answers have no such claim", value=name, fix=f"name one of {', '.join(numbers)}")
    return numbers[name]
