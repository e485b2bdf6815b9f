"""Declared tests of what a model answers if one input changes: invariances and directions.

An invariance fails in the rows whose decision flips, or by how far numbers move; a direction in the rows whose answer
goes the other way along quantiles of the training rows. They are the invariance and directional
expectation tests of Ribeiro et al. (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.asked_again import ROUNDING, Asked, measure_of
from trainworthy.lifecycle.evaluation.changed_inputs import altered, constant, grid
from trainworthy.lifecycle.protocol.figures import BehaviourResult, Estimate
from trainworthy.lifecycle.protocol.jobs import ChangedInputsJob, InputColumn
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# A share of so many rows is known to less than a hundredth where rows are independent; where they are not, more rows of
# the same groups tell little more.
MOST_ROWS = 20_000


def behaviour_results(asked: Asked, training: pd.DataFrame, job: ChangedInputsJob) -> tuple[BehaviourResult, ...]:
    """Each declared test, on all rows of the benchmark or many of them."""
    if not job.tests:
        return ()
    columns = {one.name: one for one in job.columns}
    some = asked.sample(MOST_ROWS)
    return tuple(_result(some, test, columns.get(test.column), training) for test in job.tests)


def _result(asked: Asked, test: BehaviourSpec, column: InputColumn | None, training: pd.DataFrame) -> BehaviourResult:
    measure = "violation_rate" if test.direction else measure_of(asked.kind) or "flip_rate"
    plain = BehaviourResult(declared=test, measure=measure, rows=len(asked.rows))
    if column is None:
        return plain.model_copy(update={"told": f"{test.column} is no feature whose values can be changed"})
    ask = _direction if test.direction else _invariance
    try:
        return plain.model_copy(update={"estimate": ask(asked, test, column, training[column.name])})
    except EvaluationError as error:
        return plain.model_copy(update={"told": error.problem})


def _invariance(asked: Asked, test: BehaviourSpec, column: InputColumn, training: pd.Series) -> Estimate:
    change = test.invariant_to
    assert change is not None
    values, _ = altered(asked, column, change, training)
    found = asked.moved(asked.again(values))
    if found is None:
        raise EvaluationError("answers have no decision and no number", fix="remove the test")
    return found


def _direction(asked: Asked, test: BehaviourSpec, column: InputColumn, training: pd.Series) -> Estimate:
    """The share of rows whose answer, as the value rises, goes back by more than the tolerance from where it was."""
    import numpy as np

    values = grid(column, training)
    if len(values) < 2:
        fix = "remove the test, or train on rows with other values"
        raise EvaluationError("training rows have no two values", value=column.name, fix=fix)
    asked_at = [asked.again(constant(asked.rows[column.name], value)) for value in values]
    answers = np.stack([_of_claim(asked.numbers(found), test) for found in asked_at])
    rising = -answers if test.direction == "falls" else answers
    back = (np.maximum.accumulate(rising, axis=0) - rising).max(axis=0)
    rounding = ROUNDING * float(np.max(asked.kind.answer_scale(asked.plain)))
    failed = np.asarray(back > max(test.tolerance, rounding))
    return asked.share(failed, unmoved=all(map(asked.unmoved, asked_at)))


def _of_claim(numbers: dict[str, np.ndarray], test: BehaviourSpec) -> np.ndarray:
    """That of the claim, or the only one."""
    name = test.claim or (next(iter(numbers)) if len(numbers) == 1 else "")
    if name not in numbers:
        raise EvaluationError("the answers have no such claim", value=name, fix=f"name one of {', '.join(numbers)}")
    return numbers[name]
