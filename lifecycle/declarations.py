"""What a use case declares, held against what there is: its contract (the same columns and label), its dataset version
and its price.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.cost.prices import Prices
from trainworthy.lifecycle.errors import EvaluationError, Problem, TrainworthyError, UseCaseError, did_you_mean
from trainworthy.lifecycle.evaluation.behaviour_declared import behaviour_problems
from trainworthy.lifecycle.evaluation.decision import decision_metrics
from trainworthy.lifecycle.evaluation.metadata_columns import metadata_columns, metadata_of
from trainworthy.lifecycle.evaluation.operating_point import DECISION
from trainworthy.lifecycle.evaluation.predicate import parse as parse_predicate
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.spec.split import HashSplit, StratifiedSplit
from trainworthy.lifecycle.spec.task import KIND_OF_LABEL, LABEL_TYPES, target_of
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.declared import range_problems
from trainworthy.lifecycle.use_case import UseCase

if TYPE_CHECKING:
    import pandas as pd


def agreement_problems(use_case: UseCase, contract: Contract) -> list[Problem]:
    """Columns that the contract lacks or that don't fit, a target that is not its label, and no features at all."""
    spec, columns = use_case.spec, [column.name for column in contract.columns]
    named = {
        **({} if spec.prediction_time is None else {"prediction_time": spec.prediction_time}),
        **{f"split.{key}": name for key, name in spec.split.columns_named().items()},
        **{
            f"benchmark.slices.{number}": slice_spec.column
            for number, slice_spec in enumerate(spec.benchmark.slices)
            if slice_spec.column is not None
        },
        **({} if spec.benchmark.weight is None else {"benchmark.weight": spec.benchmark.weight}),
        **{f"benchmark.decision.costs.{key}": name for key, name in spec.benchmark.cost_columns.items()},
        **{f"benchmark.fairness.columns.{number}": name for number, name in enumerate(_protected(spec))},
        **{f"benchmark.behaviour.{number}.column": test.column for number, test in enumerate(spec.benchmark.behaviour)},
    }
    problems = [
        Problem(f"use_case.yaml: {key}", "not a column of contract.yaml", did_you_mean(name, columns), name)
        for key, name in named.items()
        if name not in columns
    ]
    problems += _split_problems(spec, contract)
    if spec.target != contract.label.name:
        fix = f"write target: {contract.label.name}, or rename the label in contract.yaml"
        problems.append(Problem("use_case.yaml: target", "is not the contract's label", fix, spec.target))
    problems += [*_task_problems(spec, contract), *_weight_problems(spec, contract)]
    problems += _cost_column_problems(spec.benchmark, contract)
    problems += [*_slice_problems(use_case, contract), *_fairness_problems(spec, contract)]
    problems += behaviour_problems(spec, contract)
    if not contract.feature_columns:
        problems.append(Problem("contract.yaml", "no column has the role feature", "give the inputs role: feature"))
    return problems


def _task_problems(spec: UseCaseSpec, contract: Contract) -> Iterator[Problem]:
    """A kind of task that does not predict such a label, and metrics of classes that the label has not."""
    kind, label = spec.task.kind, contract.label
    if LABEL_TYPES[kind] != label.type:
        length = ", length: 128" if label.type == "text" else ""
        fits = (
            f"write task: {{kind: {KIND_OF_LABEL[label.type]}{length}}}, or {_LABEL_FIXES[LABEL_TYPES[kind]]} in "
            "contract.yaml"
        )
        yield Problem("use_case.yaml: task.kind", f"the contract's label is of type {label.type}", fits, kind)
        return
    kind_of_label, benchmark = kind_of(target_of(spec.task, label.classes)), spec.benchmark
    yield from _cost_problems(benchmark, kind_of_label.answer_names)
    metrics = {**kind_of_label.metrics, **decision_metrics(benchmark, kind_of_label)}
    yield from range_problems(benchmark, metrics)
    named = {"primary": benchmark.primary.metric}
    named |= {f"guardrails.{number}": guardrail.metric for number, guardrail in enumerate(benchmark.guardrails)}
    named |= {
        f"slices.{number}": slice_spec.metric for number, slice_spec in enumerate(benchmark.slices) if slice_spec.metric
    }
    for place, metric in named.items():
        if metric not in metrics and metric not in benchmark.metrics:
            fix = did_you_mean(metric, kind_of_label.metrics)
            yield Problem(
                f"use_case.yaml: benchmark.{place}.metric", "names a class that the label has not", fix, metric
            )


def _cost_problems(benchmark: BenchmarkSpec, classes: Collection[str]) -> Iterator[Problem]:
    """Classes of a cost matrix that the label has not."""
    matrix = (benchmark.decision.cost_matrix if benchmark.decision is not None else None) or {}
    for name in dict.fromkeys(class_name for true, costs in matrix.items() for class_name in (true, *costs)):
        if name not in classes:
            place, fix = "use_case.yaml: benchmark.decision.cost_matrix", did_you_mean(name, classes)
            yield Problem(place, "names a class that the label has not", fix, name)
    if matrix and DECISION in classes:
        fix = f"give the class another name, or leave cost_matrix out: then the column {DECISION} is its probability"
        problem = f"a served model gives what it decides as the column {DECISION}, which is a class's name as well"
        yield Problem("use_case.yaml: benchmark.decision.cost_matrix", problem, fix, DECISION)


def _cost_column_problems(benchmark: BenchmarkSpec, contract: Contract) -> Iterator[Problem]:
    """Columns of rows' own costs that hold no numbers, may not be stored row by row, or are the label itself."""
    columns, label = {column.name: column for column in contract.columns}, contract.label
    for key, name in benchmark.cost_columns.items():
        place, column = f"use_case.yaml: benchmark.decision.costs.{key}", columns.get(name)
        if column is None:
            continue
        if column.logical_type not in ("integer", "number"):
            fix = "name a column of integers or numbers, or give a number for all rows"
            yield Problem(place, "is no column of numbers", fix, name)
        if column.sensitive:
            fix = "name a column that is not sensitive: costs are stored row by row"
            yield Problem(place, "is a sensitive column", fix, name)
        # Of an event by greaterThan the number may well be the cost: how late it was.
        if name == label.name or (name == label.column and label.greater_than is None):
            fix = "name the column of what a wrong decision costs, or give a number for all rows"
            yield Problem(place, "is the label, which says of a row what it is and not what it costs", fix, name)


def _slice_problems(use_case: UseCase, contract: Contract) -> Iterator[Problem]:
    """Conditions that cannot be read, name no column or a sensitive one, compare what cannot be compared or ask for a
    value that no row may have; files of rows that are missing or could name none.
    """
    columns = {column.name: column for column in contract.columns} | {
        name: Column(name=name, logical_type=metadata.logical_type, role="other")
        for name, metadata in metadata_columns(contract).items()
    }
    allowed: dict[str, set[Any]] = {}
    for rule in contract.rules:
        if rule.kind == "allowed" and rule.stops_beyond_few:
            (name,), listed = rule.columns, set(rule.parameters["values"])
            allowed[name] = allowed.get(name, listed) & listed
    for number, slice_spec in enumerate(use_case.spec.benchmark.slices):
        place = f"use_case.yaml: benchmark.slices.{number}"
        if slice_spec.where is not None:
            yield from _condition_problems(f"{place}.where", slice_spec.where, columns, allowed)
        if slice_spec.rows is not None and not contract.primary_key:
            fix = "mark the columns that name a row with primaryKey: true in contract.yaml, or use where"
            yield Problem(
                f"{place}.rows", "a file of rows needs a primary key, and there is none", fix, slice_spec.rows
            )
        elif slice_spec.rows is not None and not (use_case.folder / slice_spec.rows).is_file():
            fix = f"write it with the columns {', '.join(contract.primary_key)}"
            yield Problem(f"{place}.rows", "the file is missing", fix, slice_spec.rows)
        elif slice_spec.rows is not None:
            yield from _header_problems(f"{place}.rows", use_case.folder / slice_spec.rows, contract.primary_key)


def _header_problems(place: str, path: Path, key: Iterable[str]) -> Iterator[Problem]:
    """A file of rows that is no CSV, or without a column of the primary key."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        yield Problem(place, f"the file cannot be read: {error}", "write a CSV file in UTF-8", path.name)
        return
    missing = [name for name in key if name not in header]
    if missing:
        separator_fix = " and separate the columns by commas" if len(header) == 1 and ";" in header[0] else ""
        fix = f"begin it with the line {','.join(key)}{separator_fix}"
        yield Problem(place, f"its first line lacks the primary key's {', '.join(missing)}", fix, ",".join(header))


def _condition_problems(
    place: str, where: str, columns: Mapping[str, Column], allowed: Mapping[str, set[Any]]
) -> Iterator[Problem]:
    """`allowed` are the values that the contract lists of a column, of which few rows at most may have others."""
    try:
        predicate = parse_predicate(where)
    except EvaluationError as error:
        yield Problem(place, error.problem, error.fix, error.value)
        return
    missing = [name for name in predicate.columns if name not in columns]
    for name in missing:
        yield _unknown_column(place, name, columns)
    sensitive = [name for name in predicate.columns if name in columns and columns[name].sensitive]
    if sensitive:
        fix = "name the column alone: its values are then told by number, as benchmark.fairness tells them"
        yield Problem(place, "a condition would tell a sensitive column's values by name", fix, ", ".join(sensitive))
    if not missing:
        try:
            predicate.mask(_one_row([columns[name] for name in predicate.columns]))
        except EvaluationError as error:
            yield Problem(place, error.problem, error.fix, error.value)
    for name, values in predicate.equals:
        texts, known = [value for value in values if isinstance(value, str)], allowed.get(name)
        if known is not None and len(texts) == len(values) and not known & set(texts):
            problem = f"asks for values of {name} that contract.yaml does not list"
            fix = f"{did_you_mean(texts[0], sorted(map(str, known)))} (or list it there, if rows may have it)"
            yield Problem(place, problem, fix, ", ".join(texts))
    for name, comparisons in predicate.empty_ranges:
        fix = "turn one of the comparisons, or write or where either will do"
        yield Problem(place, f"no number of {name} is {comparisons}, so no row is in it", fix, where)


def _unknown_column(place: str, name: str, columns: Mapping[str, Column]) -> Problem:
    """A name that is neither a column nor metadata of one; what comes before its last dot may be a column's name."""
    of, dot, _ = name.rpartition(".")
    if not dot or of not in columns:
        return Problem(place, "names no column of contract.yaml", did_you_mean(name, list(columns)), name)
    there = [column.name for column in metadata_of(columns[of])]
    if there:
        return Problem(place, f"names metadata that {of} has not", f"known: {', '.join(there)}", name)
    if columns[of].sensitive:
        return Problem(place, f"{of} is sensitive, and so is what its values are like", "name another column", name)
    fix = "name a feature of files or of text"
    return Problem(place, f"{of} is no feature of files or text, and has no metadata", fix, name)


def _one_row(columns: Iterable[Column]) -> pd.DataFrame:
    """A row of values as the contract types them, to try a condition on."""
    import pandas as pd

    values = {
        "integer": 1, "number": 1.5, "boolean": True, "date": date(2020, 1, 1), "timestamp": pd.Timestamp("2020-01-01"),
    }  # fmt: skip
    return pd.DataFrame({column.name: [values.get(column.logical_type, "a")] for column in columns})


def _protected(spec: UseCaseSpec) -> tuple[str, ...]:
    return () if spec.benchmark.fairness is None else spec.benchmark.fairness.columns


def _fairness_problems(spec: UseCaseSpec, contract: Contract) -> Iterator[Problem]:
    """Protected columns of times, whose values do not come back."""
    for number, name in enumerate(_protected(spec)):
        if any(column.name == name and column.logical_type in ("date", "timestamp") for column in contract.columns):
            fix = "name a column derived from it, such as the year of birth"
            yield Problem(f"use_case.yaml: benchmark.fairness.columns.{number}", "is a column of times", fix, name)


def _weight_problems(spec: UseCaseSpec, contract: Contract) -> Iterator[Problem]:
    """A column that weighs the benchmark and holds no numbers, or may not be stored row by row."""
    for column in contract.columns:
        if column.name == spec.benchmark.weight:
            if column.logical_type not in ("integer", "number"):
                fix = "name a column of integers or numbers"
                yield Problem("use_case.yaml: benchmark.weight", "is no column of numbers", fix, column.name)
            if column.sensitive:
                fix = "name a column that is not sensitive: weights are stored row by row"
                yield Problem("use_case.yaml: benchmark.weight", "is a sensitive column", fix, column.name)


_LABEL_FIXES = {
    "event": "give the label greaterThan or a column of 0 and 1",
    "class": "give the label type: class and classes",
    "labels": "give the label type: labels, classes and a separator",
    "number": "give the label type: number",
    "mask": "give the label type: mask and classes",
    "text": "give the label type: text",
}


def _split_problems(spec: UseCaseSpec, contract: Contract) -> list[Problem]:
    """A split by a primary key that the contract lacks; a prediction time that is no time, if the split names none."""
    problems, split = [], spec.split
    keyed = isinstance(split, StratifiedSplit) or (isinstance(split, HashSplit) and not split.columns)
    if keyed and not contract.primary_key:
        fix = "mark the columns that name a row with primaryKey: true"
        problems.append(Problem("contract.yaml", f"split by: {split.by} needs a primary key, and there is none", fix))
    types = {column.name: column.logical_type for column in contract.columns}
    time_column = spec.prediction_time
    if split.time_column is None and time_column and types.get(time_column, "timestamp") not in ("date", "timestamp"):
        fix = "name the column of dates or timestamps that says when the model is asked, or leave the key out"
        problems.append(
            Problem("use_case.yaml: prediction_time", "is no column of dates or timestamps", fix, time_column)
        )
    weights = [column.name for column in contract.columns if column.role == "weight"]
    if len(weights) > 1:
        fix = "give one column the role weight: it weighs training rows"
        problems.append(Problem("contract.yaml", "more than one column has the role weight", fix, weights))
    return problems


def declaration_problems(use_case: UseCase, prices: Prices) -> list[Problem]:
    """All that is wrong in the contract, between the files, and with what they name."""
    try:
        problems = agreement_problems(use_case, load_contract(use_case.contract_path))
    except UseCaseError as error:
        problems = list(error.problems)
    declared, compute = use_case.spec.dataset, use_case.spec.compute
    for where, ask in {
        "use_case.yaml: dataset": lambda: published_version(use_case.project, declared.name, declared.version),
        "use_case.yaml: compute.sku": lambda: prices.sku(compute.sku),
    }.items():
        try:
            ask()
        except TrainworthyError as error:
            problems.append(Problem(where, error.problem, error.fix, error.value))
    return problems


def refuse_declarations(use_case: UseCase, prices: Prices) -> None:
    """Raises UseCaseError with everything that declaration_problems finds."""
    problems = declaration_problems(use_case, prices)
    if problems:
        raise UseCaseError(use_case.name, problems)
