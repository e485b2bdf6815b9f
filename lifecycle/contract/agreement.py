"""Whether use_case.yaml and contract.yaml speak of the same columns and label."""

from __future__ import annotations

from lifecycle.contract.model import Contract
from lifecycle.errors import Problem, did_you_mean
from lifecycle.use_case import UseCase


def agreement_problems(use_case: UseCase, contract: Contract) -> list[Problem]:
    """Columns that the contract lacks, a target that is not its label, and no features at all."""
    spec, columns = use_case.spec, [column.name for column in contract.columns]
    named = {
        "prediction_time": spec.prediction_time,
        "split.column": spec.split.column,
        "split.resample_by": spec.split.resample_by,
        **{f"benchmark.slices.{number}": name for number, name in enumerate(spec.benchmark.slices)},
    }
    problems = [
        Problem(f"use_case.yaml: {key}", "not a column of contract.yaml", did_you_mean(name, columns), name)
        for key, name in named.items()
        if name not in columns
    ]
    if spec.target != contract.label.name:
        fix = f"write target: {contract.label.name}, or rename the label in contract.yaml"
        problems.append(Problem("use_case.yaml: target", "is not the contract's label", fix, spec.target))
    if not contract.feature_columns:
        problems.append(Problem("contract.yaml", "no column has the role feature", "give the inputs role: feature"))
    return problems
