"""Calls the functions of a use case's model.py one after the other and keeps what each gave, or what is wrong."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import did_you_mean
from trainworthy.lifecycle.hyperparameters import NoSuchHyperparameterError, likely_hyperparameters
from trainworthy.lifecycle.protocol.results import FunctionFault, FunctionsResult, TriedFunction
from trainworthy.lifecycle.task import Task, line_of, load_task

# What is wrong, and how to fix it.
Wrong = tuple[str, str]
# The names in what pandas says of a list of columns.
_LISTED = re.compile(r"\[('[^\]]*')\](?: not in index|, dtype=)")
# What Python says of an argument that a function does not take, as of one of `Network(**hyperparameters)`.
_UNEXPECTED = re.compile(r"got an unexpected keyword argument '([^']*)'")
# What torch, numpy and Python say of an index beyond a table.
_NO_PLACE = re.compile(r"^index .*out of (?:bounds|range)")
_MOST_COLUMNS = 6
# In the order in which the functions need each other, what to look at if one raises.
FIXES = {
    "fit_preprocessing": "take the training rows and the hyperparameters, and return a dict of plain values",
    "to_tensors": "rows may hold nulls and texts that training has not seen, and may be one row only",
    "build_model": "return an nn.Module made from the preprocessing's state and the hyperparameters",
    "forward": "forward takes the dict of to_tensors and gives outputs with one row for each of its rows",
    "loss_fn": "give one loss a row, shape (N,), from outputs and targets of shape (N,)",
    "predict": "give the answer of the kind of task for each row",
}
# Those that make something of the hyperparameters; in others a value of them is used that the network kept.
_USING_HYPERPARAMETERS = ("build_model", "build_optimizers", "learning_rate")
# Those that model.py need not define.
OPTIONAL_FIXES = {
    "build_optimizers": "return a list of torch optimizers that hold every trainable parameter, each in one of them",
    "learning_rate": "return a finite rate from 0 on for each step, above 0 in most",
    "augment": "return (inputs, targets) with the names, the rows and the types that it was given",
}


@dataclass
class Trials:
    """The functions that were tried so far; `features` are the columns that their rows have.

    `fixes` are what to look at if a function raises, `hyperparameters` those of use_case.yaml. `follows` says of
    functions what else their faults come from, `whole_numbers` from which to which number such a column's made rows go.
    """

    folder: Path
    features: tuple[str, ...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    fixes: Mapping[str, str] = field(default_factory=lambda: FIXES | OPTIONAL_FIXES)
    task: Task | None = None
    tried: list[TriedFunction] = field(default_factory=list)
    follows: Mapping[str, str] = field(default_factory=dict)
    whole_numbers: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def imported(self) -> Task | None:
        """The use case's model.py, None if it can't be imported: then no function was tried."""
        try:
            self.task = load_task(self.folder)
        except (Exception, SystemExit) as error:
            fault = FunctionFault(where=line_of(error, self.folder), problem=_message(error), fix="correct that line")
            self._add("model.py", faults=(fault,))
            for name in FIXES:
                self._add(name, untried="model.py can't be imported")
        return self.task

    def of(self, name: str, trial: Callable[[], tuple[Any, str, list[Wrong]]], *needed: Any) -> Any:
        """What the function gave, None if nothing that another one could go on with."""
        if any(value is None for value in needed):
            self._add(name, untried="a function that it needs gave nothing")
            return None
        try:
            value, evidence, wrong = trial()
        except (Exception, SystemExit) as error:
            columns = _unknown_columns(error, self.features)
            known = (
                _unknown_hyperparameter(error, self.hyperparameters)
                or _not_there(columns, self.features)
                or _written_into(error)
            )
            beyond = _beyond(error, self.whole_numbers)
            problem, fix = known or (_message(error), f"{beyond}{self._correct(name, error)}; {self.fixes[name]}")
            where, fix = self._where(name, error), self.follows.get(name, fix)
            self._add(name, faults=(FunctionFault(where=where, problem=problem, fix=fix, columns=columns),))
            return None
        where = self._where(name)
        faults = tuple(
            FunctionFault(where=where, problem=problem, fix=self.follows.get(name, fix)) for problem, fix in wrong
        )
        self._add(name, evidence=evidence, faults=faults)
        return value

    def _correct(self, name: str, error: BaseException) -> str:
        given = name in _USING_HYPERPARAMETERS
        return likely_hyperparameters(str(error), self.hyperparameters, given=given)

    def not_tried(self, name: str, why: str) -> None:
        self._add(name, untried=why)

    def add_own_checks(self, questions: Mapping[str, str]) -> None:
        """Own checks by id with their questions: they need a subject, which only preflight has."""
        for name, question in questions.items():
            self._add(name, evidence=f"asked in preflight: {question}")

    def result(self) -> FunctionsResult:
        return FunctionsResult(functions=tuple(self.tried))

    def _add(self, name: str, **fields: Any) -> None:
        self.tried.append(TriedFunction(name=name, **fields))

    def _where(self, name: str, error: BaseException | None = None) -> str:
        """The line that raised, if it is the use case's own; else where the function begins."""
        if error is not None:
            files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
            if any(path.is_relative_to(self.folder.resolve()) for path in files):
                return line_of(error, self.folder)
        function = getattr(self.task, "build_model" if name == "forward" else name, None)
        code = getattr(function, "__code__", None)
        return f"{Path(code.co_filename).name}:{code.co_firstlineno} in {code.co_name}" if code else f"model.py: {name}"


def _beyond(error: BaseException, whole_numbers: Mapping[str, tuple[int, int]]) -> str:
    """What to look at first where an index is beyond a table, which a whole number of a row may have been."""
    if not isinstance(error, (IndexError, RuntimeError)) or not _NO_PLACE.search(str(error)) or not whole_numbers:
        return ""
    ranges = ", ".join(f"{name} {low:,} to {high:,}" for name, (low, high) in [*whole_numbers.items()][:_MOST_COLUMNS])
    made = f"rows are made here by contract.yaml, whole numbers from end to end of what it allows ({ranges})"
    return f"{made}: if one is the index, narrow the range there to what there is; else "


def _unknown_hyperparameter(error: BaseException, hyperparameters: Mapping[str, Any]) -> Wrong | None:
    """For one that model.py reads and use_case.yaml lacks, or has and model.py does not take."""
    if isinstance(error, NoSuchHyperparameterError):
        return str(error), "rename it in use_case.yaml, or read the name that it has there"
    match = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
    if match is None or match[1] not in hyperparameters:
        return None
    names = _taken(str(error).partition("(")[0], error)
    fix = did_you_mean(match[1], names) if names else "rename it in use_case.yaml, or take it in model.py"
    return f"use_case.yaml has the hyperparameter {match[1]!r}, which model.py does not take", fix


def _taken(called: str, error: BaseException) -> list[str]:
    """The names of arguments that the called function takes, looked up where the call stands; none if not found."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return []
    first, *rest = called.split(".")
    function = {**innermost.tb_frame.f_globals, **innermost.tb_frame.f_locals}.get(first)
    for name in rest:
        function = getattr(function, name, None)
    return [name for name in inspect.signature(function).parameters if name != "self"] if callable(function) else []


def _written_into(error: BaseException) -> Wrong | None:
    """For a value that is changed in the rows' own memory, which pandas keeps from that."""
    if not isinstance(error, ValueError) or "read-only" not in str(error):
        return None
    return "changes the rows that it is given", "change a copy: rows.to_numpy(copy=True), or rows[name].copy()"


def _unknown_columns(error: BaseException, features: Sequence[str]) -> tuple[str, ...]:
    """Those that the rows do not have; () for any other error, such as an unknown hyperparameter."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, KeyError) or not any("pandas" in Path(frame.filename).parts for frame in frames):
        return ()
    key = error.args[0]
    # rows[["a", "b"]] names them in a sentence: "['a'] not in index", "None of [Index(['a'], dtype='str')] are in …".
    listed = _LISTED.search(key) if isinstance(key, str) else None
    named = re.findall(r"'([^']*)'", listed[1]) if listed else [key]
    unknown = tuple(name for name in named if name not in features)
    return unknown if all(isinstance(name, str) for name in unknown) else ()


def _not_there(columns: Sequence[str], features: Sequence[str]) -> Wrong | None:
    if not columns:
        return None
    problem = f"reads {', '.join(map(repr, columns))}: no column of the role feature in contract.yaml"
    return problem, "; ".join(did_you_mean(name, features) for name in columns)


def _message(error: BaseException) -> str:
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {first}"[:300]
