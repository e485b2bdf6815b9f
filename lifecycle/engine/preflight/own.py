"""A use case's own checks: the functions of model.py that are named check_<something>.

Each is given the subject and returns None or "" if all is well, else a text that says what is wrong; it may assert.
What is told of a failure ends with its place, so that a pull request is annotated there.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.errors import did_you_mean
from trainworthy.lifecycle.gates.check import Check, Outcome
from trainworthy.lifecycle.gates.own_names import PREFIX, own_id


def own_checks(task: object, *, sensitive: bool = False) -> tuple[Check[Any], ...]:
    """The checks of a model.py, in the order in which it defines them.

    With `sensitive` features only that a check failed is told: its text may hold a value.
    """
    functions = {name: value for name, value in vars(task).items() if name.startswith(PREFIX) and callable(value)}
    return tuple(own_check(name, function, sensitive) for name, function in functions.items())


def own_check(name: str, function: Callable[[Any], object], sensitive: bool = False) -> Check[Any]:
    """One of them as a check; the first line of its docstring is its question."""
    doc = (getattr(function, "__doc__", None) or "").strip()
    return Check(
        own_id(name),
        question=doc.partition("\n")[0] or f"Does {name} of model.py find nothing wrong?",
        symptom=f"what {name} of model.py looks for",
        cause="see what it says",
        fix=f"correct what it says, or {name} in model.py",
        look=lambda subject: _run_check(name, function, subject, sensitive),
    )


def _run_check(name: str, function: Callable[[Any], object], subject: Any, sensitive: bool) -> Outcome:
    place = _place(function)
    try:
        inspect.signature(function).bind(subject)
    except TypeError:
        evidence = f"{name}{inspect.signature(function)} is given one argument, the subject ({place})"
        return Outcome("error", evidence, fix=f"write def {name}(subject): and take from it {', '.join(_names())}")
    try:
        said = function(subject)
    except AssertionError as error:
        said, place = str(error) or f"an assertion of {name} does not hold", _place(function, error)
    except AttributeError as error:
        if error.obj is not subject:
            raise
        evidence = f"{name} reads subject.{error.name}, which there is not ({_place(function, error)})"
        return Outcome("error", evidence, fix=did_you_mean(error.name or "", _names()))
    if said is None or said == "":
        return Outcome("pass", "nothing wrong")
    if not isinstance(said, str):
        evidence = f"{name} gave {type(said).__name__}, not None or a text ({place})"
        return Outcome("error", evidence, fix=f'let {name} return None or "" if all is well, else say what is wrong')
    evidence = "its text is kept back, since it may hold a sensitive value" if sensitive else said[:400]
    return Outcome("fail", f"{evidence} ({place})")


def _names() -> list[str]:
    """What a subject has: its values, and the methods that make more of them."""
    methods = [name for name, value in vars(Subject).items() if inspect.isfunction(value) and not name.startswith("_")]
    return [*(field.name for field in fields(Subject)), *methods]


def _place(function: Callable[[Any], object], error: BaseException | None = None) -> str:
    """`model.py:12 in check_it`: where the function begins, or its line that raised; files are named from model.py's
    folder on."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return "model.py"
    line = code.co_firstlineno
    if error is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == code.co_name]
        line = next((number for number in reversed(lines) if number), line)
    # load_task names the modules of a use case by their place in its folder.
    path = Path(code.co_filename)
    depth = max(1, function.__module__.count(".") + (path.name == "__init__.py"))
    return f"{'/'.join(path.parts[-depth:])}:{line} in {code.co_name}"
