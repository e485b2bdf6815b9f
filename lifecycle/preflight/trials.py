"""Calls the functions of a use case's model.py one after the other and keeps what each gave, or what is wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lifecycle.jobs import FunctionFault, FunctionsResult, TriedFunction
from lifecycle.task import Task, line_of, load_task

# What is wrong, and how to mend it.
Wrong = tuple[str, str]
# In the order in which the functions need each other, what to look at if one raises.
FIXES = {
    "fit_preprocessing": "take the training rows and the hyperparameters, and return a dict of plain values",
    "to_tensors": "rows may hold nulls and texts that training has not seen, and may be one row only",
    "build_model": "return an nn.Module made from the preprocessing's state and the hyperparameters",
    "forward": "forward takes the dict of to_tensors and gives outputs with one row for each of its rows",
    "loss_fn": "give one loss a row, shape (N,), from outputs and targets of shape (N,)",
    "predict": "give the probability of the positive label of each row, shape (N,), for example by torch.sigmoid",
}


@dataclass
class Trials:
    """The functions that were tried so far."""

    folder: Path
    task: Task | None = None
    tried: list[TriedFunction] = field(default_factory=list)

    def imported(self) -> Task | None:
        """The use case's model.py, None if it can't be imported: then no function was tried."""
        try:
            self.task = load_task(self.folder)
        except (Exception, SystemExit) as error:
            fault = FunctionFault(where=line_of(error, self.folder), problem=_told(error), fix="mend that line")
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
            fault = FunctionFault(where=self._where(name, error), problem=_told(error), fix=FIXES[name])
            self._add(name, faults=(fault,))
            return None
        where = self._where(name)
        faults = tuple(FunctionFault(where=where, problem=problem, fix=fix) for problem, fix in wrong)
        self._add(name, evidence=evidence, faults=faults)
        return value

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


def _told(error: BaseException) -> str:
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {first}"[:300]
