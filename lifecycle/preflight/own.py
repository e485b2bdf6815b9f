"""A use case's own checks: the functions of model.py that are named check_<something>.

Each is given the subject and returns None or "" if all is well, else a text that says what is wrong; it may assert.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from lifecycle.preflight.check import Check, Found

PREFIX = "check_"


def own_checks(task: object, *, sensitive: bool = False) -> tuple[Check[Any], ...]:
    """The checks of a model.py, in the order in which it defines them.

    With `sensitive` features only that a check failed is told: its text may hold a value.
    """
    found = {name: value for name, value in vars(task).items() if name.startswith(PREFIX) and callable(value)}
    return tuple(own_check(name, function, sensitive) for name, function in found.items())


def own_check(name: str, function: Callable[[Any], object], sensitive: bool = False) -> Check[Any]:
    """One of them as a check; the first line of its docstring is its question."""
    doc = (getattr(function, "__doc__", None) or "").strip()
    return Check(
        own_id(name),
        question=doc.partition("\n")[0] or f"Does {name} of model.py find nothing wrong?",
        symptom=f"what {name} of model.py looks for",
        cause="see what it says",
        fix=f"mend what it says, or {name} in model.py",
        look=lambda subject: _asked(name, function, subject, sensitive),
    )


def own_id(name: str) -> str:
    """check_shapes → own.shapes"""
    return f"own.{name.removeprefix(PREFIX)}"


def own_names(source: str) -> tuple[str, ...]:
    """Names of the functions that a model.py's text defines or imports as checks; none if it is no Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return ()
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    imported = [a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names]
    return tuple(name for name in (*defined, *imported) if name.startswith(PREFIX))


def _asked(name: str, function: Callable[[Any], object], subject: Any, sensitive: bool) -> Found:
    try:
        said = function(subject)
    except AssertionError as error:
        said = str(error) or f"an assertion of {name} does not hold"
    if said is None or said == "":
        return Found("pass", "nothing wrong")
    if not isinstance(said, str):
        told = f"{name} gave {type(said).__name__}, not None or a text"
        return Found("error", told, fix=f'let {name} return None or "" if all is well, else say what is wrong')
    return Found("fail", "its text is kept back, since it may hold a sensitive value" if sensitive else said[:500])
