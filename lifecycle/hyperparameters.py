"""The hyperparameters of use_case.yaml as model.py gets them: a name that is not there is told with the near one."""

from __future__ import annotations

import difflib
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
