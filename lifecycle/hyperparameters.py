"""The hyperparameters of use_case.yaml as model.py gets them: a name that is not there is told with the near one."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator


class NoSuchHyperparameterError(KeyError):
    """A name that model.py reads and use_case.yaml does not declare. A KeyError, as of any dict."""

    def __str__(self) -> str:
        return str(self.args[0])


class Hyperparameters(dict[str, Any]):
    """A dict whose error of a missing name says what it holds."""

    def __missing__(self, name: str) -> Any:
        near = difflib.get_close_matches(name, self, n=1)
        instead = f"it has {near[0]!r}" if near else f"it has {', '.join(self) or 'none'}"
        raise NoSuchHyperparameterError(f"use_case.yaml has no hyperparameter {name!r}, which is read here; {instead}")


# Of a job: what crosses a process is a plain dict again.
HyperparameterValues = Annotated[dict[str, Any], AfterValidator(Hyperparameters)]


# So many are named where nothing says which of them is meant.
_MOST_NAMED = 8
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}


def likely_hyperparameters(message: str, hyperparameters: Mapping[str, Any], *, given: bool) -> str:
    """What to correct where model.py raised with this message: the line, and what in use_case.yaml may be behind it.

    Texts that read as numbers, else values that the message names, else all. `given`: what raised was given the
    hyperparameters and uses them; else only the first are a sign.
    """
    quoted = [name for name, value in hyperparameters.items() if isinstance(value, str) and reads_as_number(value)]
    if quoted:
        fixes = [f"{name}: {hyperparameters[name].strip()}" for name in quoted]
        told = ", ".join(f"{name}: {json.dumps(hyperparameters[name], ensure_ascii=False)}" for name in quoted)
        noun = "is a text" if len(quoted) == 1 else "are texts"
        mend = f"in use_case.yaml the hyperparameter {told} {noun}: write it without quotes, {', '.join(fixes)}"
        return f"{mend}; else correct that line"
    if not given or not hyperparameters:
        return "correct that line"
    named = [name for name, value in hyperparameters.items() if _names(message, value)]
    shown = ", ".join(_with_type(name, hyperparameters[name]) for name in (named or [*hyperparameters])[:_MOST_NAMED])
    if named:
        return f"see the hyperparameters in use_case.yaml that it may come from: {shown}; else correct that line"
    return f"correct that line, or the hyperparameters in use_case.yaml that it may come from: {shown}"


def reads_as_number(text: str) -> bool:
    """True of a text such as "64" or "1e-3", which is a finite number but for its quotes."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _names(message: str, value: Any) -> bool:
    """True if the message holds the value as a word by itself."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return False
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w]|\.\d)", message) is not None


def _with_type(name: str, value: Any) -> str:
    text = str(value) if not isinstance(value, str) else repr(value)
    return f"{name}: {text[:40]} ({_TYPES.get(type(value), 'keys and values')})"
