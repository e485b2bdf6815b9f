"""Tests of behaviour, as they are declared, held against the contract: what could never be asked."""

from __future__ import annotations

from collections.abc import Iterator

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.evaluation.changes import NUMBERS
from trainworthy.lifecycle.evaluation.input_columns import input_column
from trainworthy.lifecycle.evaluation.rescored import claims_of, measure_of
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec
from trainworthy.lifecycle.spec.task import LABEL_TYPES, target_of
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks import Kind, kind_of


def behaviour_problems(spec: UseCaseSpec, contract: Contract) -> Iterator[Problem]:
    """All that is wrong with `benchmark.behaviour`, but for columns that there are not."""
    columns = {column.name: column for column in contract.columns}
    kind = _kind(spec, contract)
    for number, test in enumerate(spec.benchmark.behaviour):
        place = f"use_case.yaml: benchmark.behaviour.{number}"
        if test.column in columns:
            yield from _column_problems(place, test, columns[test.column], contract)
        if kind is not None:
            yield from _kind_problems(place, test, kind)


def _kind(spec: UseCaseSpec, contract: Contract) -> Kind | None:
    """None where the contract's label is of another kind, or tests are refused as a whole: that is told elsewhere."""
    if LABEL_TYPES[spec.task.kind] != contract.label.type:
        return None
    kind = kind_of(target_of(spec.task, contract.label.classes))
    return kind if len(kind.answer_shape) < 2 else None


def _column_problems(place: str, test: BehaviourSpec, column: Column, contract: Contract) -> Iterator[Problem]:
    number = column.logical_type in NUMBERS
    if column.role != "feature" or column.file is not None:
        what = "names files, which are not changed" if column.file is not None else "is no feature"
        whole = [feature.name for feature in contract.columns if feature.role == "feature" and feature.file is None]
        yield Problem(f"{place}.column", what, did_you_mean(column.name, whole), column.name)
    elif test.direction is not None and not number:
        fix = "name a column of integers or numbers, or write invariant_to: swapped"
        yield Problem(f"{place}.direction", "only numbers rise", fix, f"{column.name}: {column.logical_type}")
    elif test.invariant_to == "jitter" and not number:
        fix = "write invariant_to: swapped"
        yield Problem(f"{place}.invariant_to", "only numbers have jitter", fix, f"{column.name}: {column.logical_type}")
    elif test.invariant_to == "missing" and not input_column(column, contract.rules).nullable:
        fix = "remove the test: the contract keeps missing values from the model"
        yield Problem(f"{place}.invariant_to", "the contract refuses a missing value", fix, column.name)


def _kind_problems(place: str, test: BehaviourSpec, kind: Kind) -> Iterator[Problem]:
    share = test.direction is not None or measure_of(kind) == "flip_rate"
    if share and test.at_most >= 1:
        fix = "write a share of rows below 1, such as 0.02"
        yield Problem(f"{place}.at_most", "is no limit of a share of rows", fix, test.at_most)
    # Nothing is there to choose of one number a row; asking for its name would load numpy in every command.
    one_number = test.claim is None and not kind.answer_shape
    claims = () if test.direction is None or one_number else claims_of(kind)
    if test.claim is not None and test.claim not in claims:
        yield Problem(f"{place}.claim", "is nothing that is answered", did_you_mean(test.claim, claims), test.claim)
    elif test.direction is not None and test.claim is None and len(claims) > 1:
        fix = f"say whose probability, for example claim: {claims[0]}"
        yield Problem(f"{place}.direction", "the answer holds several probabilities", fix, test.direction)
